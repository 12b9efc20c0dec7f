package starter

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
)

// Options say what a configuration is written for.
type Options struct {
	File       string  // the name of the future configuration file; relative paths in Broker are relative to its directory
	Kubeconfig string  // empty: as in a configuration without `kubeconfig`
	Cluster    string  // the name of the cluster; empty: that of the kubeconfig
	Broker     *Broker // nil: the configuration has an embedded NATS server
	UserAgent  string
}

//go:embed bridge.yaml.tmpl
var text string

// values are the values of the template.
type values struct {
	Server, Cluster, Kubeconfig string
	Entries                     []entry
	Denied                      []string
	Kind, Section, Note         string
}

// Write examines the cluster and the broker, and returns the text of a configuration file.
func Write(ctx context.Context, o *Options) (string, error) {
	var v values
	kube, err := assemble.Kubeconfig(o.Kubeconfig)
	if err != nil {
		return "", err
	}
	v.Server = kube.Host
	if o.Kubeconfig != "" {
		if v.Kubeconfig, err = filepath.Abs(o.Kubeconfig); err != nil {
			return "", err
		}
	}
	client, catalog, err := assemble.Discover(ctx, &config.Config{Kubeconfig: o.Kubeconfig}, o.UserAgent)
	if err != nil {
		return "", err
	}
	cluster, namespace, err := assemble.CurrentContext(o.Kubeconfig)
	if err != nil {
		return "", err
	}
	v.Cluster = validName(cmp.Or(o.Cluster, cluster))
	found, err := findResources(ctx, client, catalog.Served, namespace)
	if err != nil {
		return "", err
	}
	if v.Entries, v.Denied = entries(found); len(v.Entries) == 0 {
		return "", fmt.Errorf("the user of the kubeconfig may not list and watch any resource of interest, in the "+
			"cluster or in the namespace %s: use the kubeconfig of another user, or grant the permissions", namespace)
	}
	if o.Broker != nil {
		v.Kind = o.Broker.Kind
		if v.Section, v.Note, err = o.Broker.survey(ctx, o.File); err != nil {
			return "", err
		}
	}
	functions := template.FuncMap{"indent": indent}
	var out strings.Builder
	err = template.Must(template.New("").Funcs(functions).Parse(text)).Execute(&out, &v)
	return out.String(), err
}

// validName returns a valid name of a cluster that is similar to name.
func validName(name string) string {
	name = regexp.MustCompile(`[^A-Za-z0-9._-]+`).ReplaceAllString(name, "-")
	name = name[max(0, len(name)-63):]
	return cmp.Or(strings.Trim(name, "._-"), "local")
}

// indent indents the lines of a text.
func indent(by int, text string) string {
	margin := strings.Repeat(" ", by)
	return margin + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+margin)
}

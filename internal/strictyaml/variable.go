package strictyaml

import (
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Variable is a reference to an environment variable in a value of the file.
type Variable struct {
	Name   string `json:"name"`
	Line   int    `json:"line"`   // starts at 1
	Column int    `json:"column"` // starts at 1; counted in characters
	Path   string `json:"path"`   // the path of the value, as in sinks[0].nats.url
	Set    bool   `json:"set"`    // if false, the default in the file applies
}

// reference matches ${NAME}, ${NAME:-default}, the escape $${, and the beginning of anything else that starts with ${.
var reference = regexp.MustCompile(`\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\})?`)

// expand returns a copy of a scalar in which the values of environment variables replace the references. The text of a
// copy has the type that the key requires, if it can have this type. Other nodes are returned as they are. If a
// reference is not valid, expand reports a mistake and returns nil.
func (d *decoder) expand(path string, node *yaml.Node, kind reflect.Kind) *yaml.Node {
	if node.Kind != yaml.ScalarNode || !strings.Contains(node.Value, "${") {
		return node
	}
	expanded := *node
	expanded.Tag = "!!str"
	expanded.Value = reference.ReplaceAllStringFunc(node.Value, func(text string) string {
		return d.variable(path, node, text)
	})
	if d.broken[path] {
		return nil
	}
	switch _, err := strconv.Atoi(expanded.Value); {
	case kind == reflect.Int && err == nil:
		expanded.Tag = "!!int"
	case kind == reflect.Bool && (expanded.Value == "true" || expanded.Value == "false"):
		expanded.Tag = "!!bool"
	}
	return &expanded
}

// variable returns what replaces text, which reference matches.
func (d *decoder) variable(path string, node *yaml.Node, text string) string {
	if text == "$${" {
		return "${"
	}
	parts := reference.FindStringSubmatch(text)
	name, hasDefault := parts[1], parts[2] != ""
	value, set := os.LookupEnv(name)
	switch {
	case name == "":
		d.report(path, "contains ${, but no valid reference to an environment variable",
			"write ${NAME} or ${NAME:-default}, or $${ for the characters ${")
		return ""
	case !set && !hasDefault:
		d.report(path, "the environment variable "+name+" is not set",
			"set it, or add a default: ${"+name+":-default}")
		return ""
	}
	useDefault := hasDefault && value == ""
	d.variables = append(d.variables, Variable{name, node.Line, node.Column, path, !useDefault})
	if useDefault {
		return parts[3]
	}
	return value
}

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/statustext"
	"github.com/deltabridge/deltabridge/pkg/informer"
)

func newStatusCommand(stdout io.Writer) *cobra.Command {
	var from statusSource
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether everything is delivered, and if not, where events wait and for how much longer they can",
		Long: "status asks the HTTP ports of all replicas. It prints first whether everything is delivered and, if not, what\n" +
			"to do. Then follow the replicas, the sinks with their queues, the sources with problems, the checkpoint, and the\n" +
			"last take-over. The addresses are those in `http.peers:`, or else the bridge's own address in `http.listen:`. A\n" +
			"name stands for all its addresses.\n\n" +
			"With --pod, it asks Pods through the API server of the current kubeconfig (KUBECONFIG). This requires the right\n" +
			"to get pods/proxy, and that the API server can reach the port of the Pod.\n\n" +
			"It exits with 1 if no replica delivers, and with 2 if anything else is wrong, for example if a replica does not\n" +
			"answer or is not ready, a sink's broker is unavailable, or events were lost in the last 15 minutes.",
		Args: cobra.NoArgs,
	}
	file := newConfigFile(cmd.Flags())
	cmd.Flags().StringSliceVar(&from.addresses, "address", nil,
		"ask these `addresses` (host:port), without a configuration")
	cmd.Flags().StringSliceVar(&from.pods, "pod", nil,
		"ask these `Pods` (NAME or NAME:PORT; the port is 8080 by default), without a configuration")
	cmd.Flags().StringVarP(&from.namespace, "namespace", "n", "deltabridge", "the `namespace` of the Pods")
	cmd.MarkFlagsMutuallyExclusive("config", "address", "pod")
	out := newOutput(cmd, stdout, formatText, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(from.addresses)+len(from.pods) == 0 {
			cfg, _, err := file.read(true)
			if err != nil {
				return err
			}
			from.addresses = cfg.HTTP.Addresses()
		}
		report, err := from.report(cmd.Context())
		return cmp.Or(out.print(report), err)
	}
	return cmd
}

// statusSource is whom `bridge status` asks: either addresses or Pods.
type statusSource struct {
	addresses, pods []string
	namespace       string
}

// report returns the report. The error is what is wrong.
func (s *statusSource) report(ctx context.Context) (*statustext.Report, error) {
	report := &statustext.Report{}
	if len(s.pods) > 0 {
		kube, err := assemble.Kubeconfig("")
		if err == nil {
			report.Replicas, err = readPods(ctx, kube, s.namespace, s.pods)
		}
		if err != nil {
			report.Problem = err.Error()
			return report, err
		}
	} else {
		report.Replicas = control.ReadStatus(ctx, s.addresses)
	}
	err := examine(report.Replicas)
	if err != nil {
		report.Problem = err.Error()
	}
	return report, err
}

// readPods asks Pods through the API server, one after the other.
func readPods(ctx context.Context, kube *rest.Config, namespace string, pods []string) ([]control.Answer, error) {
	client, err := informer.NewClient(kube)
	if err != nil {
		return nil, err
	}
	var answers []control.Answer
	for _, pod := range pods {
		name, port, found := strings.Cut(pod, ":")
		if !found {
			port = "8080"
		}
		a := control.Answer{Address: "pod " + namespace + "/" + name}
		body, err := client.Get().AbsPath("/api/v1/namespaces", namespace, "pods", "http:"+name+":"+port, "proxy",
			control.StatusPath).Timeout(control.Timeout).MaxRetries(0).DoRaw(ctx)
		if err == nil {
			a.Status, err = control.ParseStatus(bytes.NewReader(body))
		}
		if err != nil {
			a.Error = err.Error()
		}
		answers = append(answers, a)
	}
	control.Sort(answers)
	return answers, nil
}

// examine returns an error that says what is wrong, in one line, or nil.
func examine(answers []control.Answer) error {
	problems, delivers := control.Examine(answers)
	if len(problems) == 0 {
		return nil
	}
	for n := range problems {
		problems[n] = console.Clean(problems[n])
	}
	code := exitPartly
	if !delivers {
		code = exitFailed
	}
	return &exitError{errors.New(strings.Join(problems, "; ")), code}
}

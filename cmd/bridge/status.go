package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"time"

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
	var watch bool
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
			"answer or is not ready, a sink's broker is unavailable, or events were lost in the last 15 minutes. With\n" +
			"--watch, it exits with 0 when it is interrupted.",
		Args: cobra.NoArgs,
	}
	file := newConfigFile(cmd.Flags())
	cmd.Flags().StringSliceVar(&from.addresses, "address", nil,
		"ask these `addresses` (host:port), without a configuration")
	cmd.Flags().StringSliceVar(&from.pods, "pod", nil,
		"ask these `Pods` (NAME or NAME:PORT; the port is 8080 by default), without a configuration")
	cmd.Flags().StringVarP(&from.namespace, "namespace", "n", "deltabridge", "the `namespace` of the Pods")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print the status every two seconds, until SIGINT or SIGTERM")
	cmd.MarkFlagsMutuallyExclusive("config", "address", "pod")
	out := newOutput(cmd, stdout, formatText, formatJSON, formatYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(from.addresses)+len(from.pods) == 0 {
			cfg, _, err := file.read(true)
			if err != nil {
				return err
			}
			from.addresses = cfg.HTTP.Addresses()
		}
		if watch {
			return from.watch(cmd.Context(), out)
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

// watchInterval is the time between two reports of --watch.
const watchInterval = 2 * time.Second

// Escape sequences with which a terminal shows a new report in the place of the previous one. Long lines are cut.
const (
	drawFrom = "\x1b[?7l\x1b[H\x1b[J"
	drawTo   = "\x1b[?7h"
)

// watch prints reports until ctx ends. On a terminal, each replaces the previous one.
func (s *statusSource) watch(ctx context.Context, out *output) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		report, _ := s.report(ctx) // the report has the error
		if ctx.Err() != nil {
			return nil
		}
		var err error
		if out.format.value == formatText {
			err = show(out.w, report, consoleStyle(out.w), isTerminal(out.w))
		} else {
			err = out.print(report)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// show writes a report at once. If redraw is set, it replaces what the terminal shows.
func show(w io.Writer, report *statustext.Report, style console.Style, redraw bool) error {
	var b bytes.Buffer
	if redraw {
		b.WriteString(drawFrom)
	}
	b.WriteString(time.Now().Format(time.DateTime) + "\n\n")
	_ = report.WriteTable(&b, style) // a Buffer returns no errors
	if redraw {
		b.WriteString(drawTo)
	} else {
		b.WriteString("\n")
	}
	_, err := w.Write(b.Bytes())
	return err
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

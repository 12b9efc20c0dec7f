package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/deltabridge/deltabridge/internal/starter"
)

func newInitCommand(stdout io.Writer) *cobra.Command {
	o := starter.Options{UserAgent: "deltabridge-init/" + version}
	var nats, kafka, file string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a first configuration for a cluster and a broker",
		Long: "init asks the API server which resources exist and which of them you may watch, and the broker in --nats\n" +
			"or --kafka what it has. Then it writes a configuration with comments. It changes nothing else.\n\n" +
			"If the broker requires authentication or TLS, give the keys of the section `nats` or `kafka` in braces\n" +
			"instead of the address. Without a broker, the configuration has an embedded NATS server.",
		Example: "  bridge init --nats nats://127.0.0.1:4222 --file bridge.yaml\n" +
			"  bridge init --nats '{url: tls://nats.example.com:4222, credentialsFile: bridge.creds}'\n" +
			"  bridge init --kafka kafka-0.kafka:9092,kafka-1.kafka:9092",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case nats != "":
				o.Broker = &starter.Broker{Kind: starter.KindNATS, Keys: nats}
			case kafka != "":
				o.Broker = &starter.Broker{Kind: starter.KindKafka, Keys: kafka}
			}
			if o.File = file; file == "" {
				o.File = configDefault
			}
			text, err := starter.Write(cmd.Context(), &o)
			if err != nil {
				return err
			}
			return writeNew(file, text, stdout)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&file, "file", "f", "", "write to this `file`, which must not exist, instead of standard output")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: $KUBECONFIG, or else ~/.kube/config)")
	flags.StringVar(&o.Cluster, "cluster", "", "`name` of the cluster in events (default: its name in the kubeconfig)")
	flags.StringVar(&nats, "nats", "", "`URL` of the NATS servers, or the keys of `nats` in braces")
	flags.StringVar(&kafka, "kafka", "", "Kafka `brokers` (host:port), or the keys of `kafka` in braces")
	cmd.MarkFlagsMutuallyExclusive("nats", "kafka")
	return cmd
}

// writeNew writes text to a file that does not exist yet. If the name is empty, it writes to stdout.
func writeNew(name, text string, stdout io.Writer) error {
	if name == "" {
		_, err := io.WriteString(stdout, text)
		return err
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}

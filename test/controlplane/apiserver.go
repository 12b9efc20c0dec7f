package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the metrics that kube-apiserver itself has
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	"github.com/deltabridge/deltabridge/test/controlplane/internal/folder"
)

// compactionInterval is kube-apiserver's own default.
const compactionInterval = 5 * time.Minute

// enableServiceAccounts enables an admission plugin that gives Pods the tokens of their service accounts. It is
// disabled by default, because it refuses Pods in a namespace without a "default" service account, and only the
// controller manager makes those.
const enableServiceAccounts = "--enable-admission-plugins=ServiceAccount"

func apiServerCommand() *cobra.Command {
	var (
		dir, etcd  string
		port       int
		compaction time.Duration
	)
	cmd := &cobra.Command{
		Use:   "apiserver --dir DIR --port PORT --etcd URL [-- KUBE-APISERVER-FLAGS]",
		Short: "kube-apiserver alone, on 127.0.0.1, against a running etcd",
		RunE: func(_ *cobra.Command, extra []string) error {
			f, err := folder.Open(dir)
			if err != nil {
				return err
			}
			if err := f.WriteKubeconfigs(fmt.Sprintf("https://127.0.0.1:%d", port)); err != nil {
				return err
			}
			flags := apiServerFlags(f, port, etcd, compaction)
			if !slices.Contains(extra, enableServiceAccounts) { // the server rejects both flags together
				flags = append(flags, "--disable-admission-plugins=ServiceAccount")
			}
			return serveAPI(append(flags, extra...))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder of the cluster")
	cmd.Flags().IntVar(&port, "port", 0, "HTTPS port on 127.0.0.1")
	cmd.Flags().StringVar(&etcd, "etcd", "", "URL of etcd")
	cmd.Flags().DurationVar(&compaction, "compaction-interval", compactionInterval,
		"how often etcd's history is cut; 0 keeps all of it")
	mustRequire(cmd, "dir", "port", "etcd")
	return cmd
}

// apiServerFlags are the flags for the cluster in f. A flag with one value that
// is given again behind them wins.
func apiServerFlags(f *folder.Folder, port int, etcd string, compaction time.Duration) []string {
	return []string{
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + f.ServerCert(),
		"--tls-private-key-file=" + f.ServerKey(),

		"--etcd-servers=" + etcd,
		"--etcd-compaction-interval=" + compaction.String(),

		"--authorization-mode=Node,RBAC",
		"--token-auth-file=" + f.Tokens(),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + f.ServiceAccountKey(),
		"--service-account-signing-key-file=" + f.ServiceAccountKey(),

		// Without a grace period a shutdown waits a minute for open watches, and
		// does not tell them to end. With one it ends them, 200 a second or more.
		"--shutdown-watch-termination-grace-period=10s",

		"--service-cluster-ip-range=10.0.0.0/24",
		// An endpoint on the loopback interface is invalid, so the service
		// "kubernetes" gets none.
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",
	}
}

// serveAPI runs kube-apiserver until a signal ends it.
func serveAPI(flags []string) error {
	server := app.NewAPIServerCommand()
	server.SetArgs(flags)
	if code := cli.Run(server); code != 0 {
		return errors.New("kube-apiserver failed, see its log above")
	}
	return nil
}

// Command controllermanager is the kube-controller-manager for a cluster that
// controlplane runs: the same folder, the flags that belong to it, and then
// whatever flags follow "--".
package main

import (
	"errors"
	"fmt"
	"os"
	_ "time/tzdata" // CronJobs name time zones; the machine may have no database of them

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/deltabridge/deltabridge/test/controlplane/internal/folder"
)

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "controllermanager:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:           "controllermanager --dir DIR [-- KUBE-CONTROLLER-MANAGER-FLAGS]",
		Short:         "kube-controller-manager for the cluster in a folder",
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(_ *cobra.Command, extra []string) error {
			f, err := folder.Open(dir)
			if err != nil {
				return err
			}
			return manage(f, extra)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder of the cluster")
	_ = cmd.MarkFlagRequired("dir") // fails only for a flag that does not exist
	return cmd
}

// manage runs the kube-controller-manager until a signal ends it.
func manage(f *folder.Folder, extra []string) error {
	manager := app.NewControllerManagerCommand()
	manager.SetArgs(append([]string{
		"--kubeconfig=" + f.ControllerManagerKubeconfig(),
		"--authentication-kubeconfig=" + f.ControllerManagerKubeconfig(),
		"--authorization-kubeconfig=" + f.ControllerManagerKubeconfig(),
		"--service-account-private-key-file=" + f.ServiceAccountKey(),
		"--root-ca-file=" + f.CA(),
		"--use-service-account-credentials=true",
		"--leader-elect=false", // it is alone: no lease to wait for after a restart
		"--secure-port=0",
	}, extra...))
	if code := cli.Run(manager); code != 0 {
		return errors.New("kube-controller-manager failed, see its log above")
	}
	return nil
}

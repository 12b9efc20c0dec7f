package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/deltabridge/deltabridge/test/controlplane/internal/folder"
)

// quota is the size of the database, in bytes, at which etcd refuses writes.
// The default of 2 GiB is soon full when nothing is compacted.
const quota = 8 << 30

func etcdCommand() *cobra.Command {
	var (
		dir     string
		port    int
		noFsync bool
	)
	cmd := &cobra.Command{
		Use:   "etcd --dir DIR --port PORT",
		Short: "etcd alone: one node on 127.0.0.1, with its HTTP/JSON gateway",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := folder.Open(dir)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return serveEtcd(ctx, etcdConfig(f.EtcdData(), port, noFsync))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder of the cluster")
	cmd.Flags().IntVar(&port, "port", 0, "client port on 127.0.0.1")
	cmd.Flags().BoolVar(&noFsync, "unsafe-no-fsync", false,
		"never wait for the disk: faster, survives the death of the process but not of the machine")
	mustRequire(cmd, "dir", "port")
	return cmd
}

// etcdConfig describes a cluster of one node that talks to nobody but its clients.
func etcdConfig(dataDir string, port int, noFsync bool) *embed.Config {
	client := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}
	// There are no peers, but the listener cannot be left out. With port 0 it
	// takes any free port, and the address that the data remembers stays the same.
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"}

	config := embed.NewConfig()
	config.Name = "controlplane"
	config.Dir = dataDir
	config.ListenClientUrls = []url.URL{client}
	config.AdvertiseClientUrls = []url.URL{client}
	config.ListenPeerUrls = []url.URL{peer}
	config.AdvertisePeerUrls = []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.EnableGRPCGateway = true
	config.QuotaBackendBytes = quota
	config.UnsafeNoFsync = noFsync
	config.LogLevel = "warn"
	return config
}

// serveEtcd runs etcd until ctx ends, which is no error, or it fails. The process
// is expected to end then: connections and listeners stay open.
func serveEtcd(ctx context.Context, config *embed.Config) error {
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-ctx.Done():
		// This writes all there is and closes the database. Close would wait
		// before for the watches of the API server, which never end: 7 seconds.
		etcd.Server.Stop()
		return nil
	case err := <-etcd.Err():
		return fmt.Errorf("etcd: %w", err)
	case <-etcd.Server.StopNotify():
		return errors.New("etcd stopped by itself, see its log above")
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/test/cluster"
)

// apiServer is a real API server with its etcd.
type apiServer struct {
	*cluster.Cluster
	client kubernetes.Interface
	caFile string
	token  string
}

// writers is the number of concurrent requests to the API server.
const writers = 8

func (b *bench) startAPIServer(ctx context.Context, flags ...string) (*apiServer, error) {
	dir, err := os.MkdirTemp(b.dir, "cluster-")
	if err != nil {
		return nil, err
	}
	c, err := cluster.Start(ctx, cluster.Options{Dir: dir, Log: b.out, APIServerFlags: flags})
	if err != nil {
		return nil, err
	}
	a := &apiServer{Cluster: c, caFile: filepath.Join(dir, "api-server-ca.pem")}
	config := c.RESTConfig()
	a.token = config.BearerToken
	err = rest.LoadTLSFiles(config)
	if err == nil {
		err = os.WriteFile(a.caFile, config.CAData, 0o600)
	}
	if err == nil {
		a.client, err = kubernetes.NewForConfig(config)
	}
	if err == nil {
		_, err = a.client.CoreV1().
			Namespaces().
			Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: benchNamespace}}, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return a, nil
}

// benchNamespace contains all objects of the benchmarks in a real API server.
const benchNamespace = "bench"

// createConfigMaps creates the first count objects of the namespace.
func (a *apiServer) createConfigMaps(ctx context.Context, count int) error {
	return parallel(ctx, count, func(ctx context.Context, n int) error {
		_, err := a.client.CoreV1().ConfigMaps(benchNamespace).Create(ctx, realConfigMap(n), metav1.CreateOptions{})
		return err
	})
}

// watch returns the entry of the bridge's configuration that selects the objects.
func (a *apiServer) watch() string {
	return "{resources: [configmaps], namespaces: [" + benchNamespace + "]}"
}

// floorTo returns the arguments with which the floor watches the objects.
func (b *bench) floorTo(a *apiServer, parameters string) []string {
	return []string{
		"-url",
		a.APIServerURL() + "/api/v1/namespaces/" + benchNamespace + "/configmaps" + parameters,
		"-ca",
		a.caFile,
		"-token",
		a.token,
		fmt.Sprintf("-http1=%t", b.floorHTTP1),
	}
}

// committedAt is the annotation that contains the time of the commit, in Unix nanoseconds.
const committedAt = "bench/at"

func realConfigMap(n int) *corev1.ConfigMap {
	var settings strings.Builder
	for i := 0; settings.Len() < smallObject-700; i++ {
		fmt.Fprintf(&settings, "setting.%d.%d=%x\n", n, i, (n+1)*(i+7)*2654435761)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("settings-%06d", n), Namespace: benchNamespace, Labels: map[string]string{"tier": "backend"},
			Annotations: map[string]string{committedAt: "0"},
		},
		Data: map[string]string{"application.properties": settings.String()},
	}
}

// post creates an object at a path.
func (a *apiServer) post(ctx context.Context, path, document string) error {
	err := a.client.CoreV1().
		RESTClient().
		Post().
		AbsPath(path).
		SetHeader("Content-Type", "application/json").
		Body([]byte(document)).
		Do(ctx).
		Error()
	if err != nil {
		return fmt.Errorf("create at %s: %w", path, err)
	}
	return nil
}

// parallel calls do for 0 to count-1, with several calls at the same time.
func parallel(ctx context.Context, count int, do func(ctx context.Context, n int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for n := range count {
		group.Go(func() error { return do(ctx, n) })
	}
	return group.Wait()
}

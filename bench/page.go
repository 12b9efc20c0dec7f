package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

const (
	pageViewers = 10
	pageChanges = 50 // changes per second while the page is measured
)

// usage is what a bridge uses for a time.
type usage struct {
	cpu      float64 // percent of a core
	resident float64 // bytes
}

// page returns what ten viewers of the live page add to a bridge. It measures the bridge under steady changes without
// viewers, and then with viewers who see everything.
func (b *bench) page(ctx context.Context, api *apiServer, r *bridge) (cost usage, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group errgroup.Group
	group.Go(func() error { return api.changeThings(ctx) })
	alone, err := r.use(ctx, atRest)
	if err == nil {
		for range pageViewers {
			group.Go(func() error { return r.view(ctx) })
		}
		if err = pause(ctx, settling); err == nil {
			cost, err = r.use(ctx, atRest)
		}
	}
	cancel()
	if failed := group.Wait(); err == nil {
		err = failed
	}
	return usage{cost.cpu - alone.cpu, cost.resident - alone.resident}, err
}

// use measures what a bridge uses for a time.
func (r *bridge) use(ctx context.Context, span time.Duration) (used usage, err error) {
	before, err := r.cpu()
	if err != nil {
		return used, err
	}
	began := time.Now()
	if err := pause(ctx, span); err != nil {
		return used, err
	}
	after, err := r.cpu()
	if err != nil {
		return used, err
	}
	used.cpu = 100 * (after - before).Seconds() / time.Since(began).Seconds()
	resident, _, err := memoryOf(r.Pid)
	used.resident = float64(resident)
	return used, err
}

// view looks at the page with a tail until ctx ends.
func (r *bridge) view(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.http+"/ui/tail", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	read, err := io.Copy(io.Discard, response.Body)
	if ctx.Err() == nil || read == 0 {
		return fmt.Errorf("the page ended after %d bytes: %s, %w", read, response.Status, err)
	}
	return nil
}

// changeThings changes objects of the first resource until ctx ends.
func (a *apiServer) changeThings(ctx context.Context) error {
	limit := rate.NewLimiter(pageChanges, 1)
	for n := 0; limit.Wait(ctx) == nil; n++ {
		path := fmt.Sprintf("/apis/%s/v1/namespaces/%s/thing0s/thing-%d", manyGroup(n%manyGroups), benchNamespace,
			n/manyGroups%objectsPerResource)
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
		err := a.client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path).Body(patch).Do(ctx).Error()
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("change %s: %w", path, err)
		}
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"
)

const (
	manyGroups, manyPerGroup = 10, 30
	objectsPerResource       = 10
	settling                 = 5 * time.Second // after the last event
	atRest                   = 30 * time.Second
)

// idleness is what a bridge uses while nothing changes.
type idleness struct {
	usage

	heap                    float64 // bytes
	goroutines, connections float64
	page                    usage // what viewers of the page add
}

// many measures the cost of hundreds of watched resources without changes.
func many(ctx context.Context, b *bench) error {
	api, err := b.startAPIServer(ctx)
	if err != nil {
		return err
	}
	return errors.Join(b.manyResources(ctx, api), api.Stop())
}

func (b *bench) manyResources(ctx context.Context, api *apiServer) error {
	perGroup := b.scaled(manyPerGroup)
	began := time.Now()
	watch := ""
	for group := range manyGroups {
		watch += fmt.Sprintf(`, "*.%s"`, manyGroup(group))
	}
	watch = "{resources: [" + watch[2:] + "]}"
	if err := define(ctx, api, perGroup); err != nil {
		return err
	}
	b.say(
		"many: %d resources of %d objects, made in %s",
		manyGroups*perGroup,
		objectsPerResource,
		time.Since(began).Round(time.Second),
	)
	objects := manyGroups * perGroup * objectsPerResource
	return b.onFirstBroker(ctx, func(to broker) error {
		all, err := repeat(b.runs, func(n int) (idleness, error) {
			return b.idle(ctx, api, to, watch, objects, fmt.Sprintf("many-%d", n))
		})
		if err == nil {
			b.report.many(all, manyGroups*perGroup, objects, b.scale != 1)
		}
		return err
	})
}

func manyGroup(n int) string { return fmt.Sprintf("group%d.bench.example.com", n) }

// define creates the resources and their objects.
func define(ctx context.Context, api *apiServer, perGroup int) error {
	err := parallel(ctx, manyGroups*perGroup, func(ctx context.Context, n int) error {
		group, kind := manyGroup(n/perGroup), fmt.Sprintf("Thing%d", n%perGroup)
		plural := fmt.Sprintf("thing%ds", n%perGroup)
		return api.post(
			ctx,
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1",
			"kind":"CustomResourceDefinition","metadata":{"name":"%s.%s"},"spec":{"group":"%s","scope":"Namespaced",
			"names":{"plural":"%s","kind":"%s"},"versions":[{"name":"v1","served":true,"storage":true,
			"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`, plural, group, group, plural, kind),
		)
	})
	if err != nil {
		return err
	}
	return parallel(ctx, manyGroups*perGroup, func(ctx context.Context, n int) error {
		group := manyGroup(n / perGroup)
		path := fmt.Sprintf("/apis/%s/v1/namespaces/%s/thing%ds", group, benchNamespace, n%perGroup)
		for i := range objectsPerResource {
			err := until(ctx, startTimeout, func() error { // a new resource is served only after some time
				return api.post(
					ctx,
					path,
					fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Thing%d","metadata":{"name":"thing-%d","namespace":"%s",
					"labels":{"app.kubernetes.io/name":"shop","tier":"backend"}},
					"spec":{"replicas":%d,"image":"registry.example.com/shop/web:v1.2.%d",
					"schedule":"*/5 * * * *","settings":{"timeout":"30s","retries":3,"endpoints":["10.0.0.1:8080","10.0.0.2:8080"]}}}`,
						group, n%perGroup, i, benchNamespace, i, n),
				)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// idle runs a bridge until it has delivered everything, and then measures it while nothing changes.
func (b *bench) idle(
	ctx context.Context,
	api *apiServer,
	to broker,
	watch string,
	objects int,
	run string,
) (i idleness, err error) {
	const name = "bench"
	if err := to.create(ctx, name); err != nil {
		return i, err
	}
	defer func() { err = errors.Join(err, to.remove(ctx, name)) }()
	r, err := b.startBridge(ctx, bridgeSetup{kubeconfig: api.Kubeconfig(), watch: watch, sinks: []string{name}}, to)
	if err != nil {
		return i, err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	if err := untilSlow(ctx, func() error { return r.idle(ctx, objects) }); err != nil {
		return i, err
	}
	if err := pause(ctx, settling); err != nil {
		return i, err
	}
	finish := b.profile(ctx, r, run, atRest)
	if i.usage, err = r.use(ctx, atRest); err != nil {
		return i, err
	}
	address, err := url.Parse(api.APIServerURL())
	if err != nil {
		return i, err
	}
	connections, err := connectionsTo(r.Pid, address.Port())
	if err != nil {
		return i, err
	}
	i.connections = float64(connections)
	m, err := r.metrics(ctx)
	if err != nil {
		return i, err
	}
	i.goroutines = m.sum("go_goroutines")
	if err := finish(); err != nil {
		return i, err
	}
	if i.heap, err = r.liveHeap(ctx); err != nil {
		return i, err
	}
	i.page, err = b.page(ctx, api, r)
	b.say(
		"many: %.0f MB resident, live heap %.1f MB, %.2f %% of a core, %.0f goroutines, %.0f connections to the API server; "+
			"%d viewers of the page: %.2f %% of a core, %.1f MB",
		i.resident/1e6,
		i.heap/1e6,
		i.cpu,
		i.goroutines,
		i.connections,
		pageViewers,
		i.page.cpu,
		i.page.resident/1e6,
	)
	return i, err
}

func (r *report) many(all []idleness, resources, objects int, scaled bool) {
	resident, cpu := func(i idleness) float64 { return i.resident / 1e6 }, func(i idleness) float64 { return i.cpu }
	r.add(
		"many",
		"CustomResourceDefinitions of a real API server, all watched, and nothing happens for "+atRest.String()+".",
		cell{"resources", fmt.Sprint(resources)},
		cell{"objects", fmt.Sprint(objects)},
		figure("resident MB", "%.0f", all, resident),
		figure("live heap MB", "%.1f", all, func(i idleness) float64 { return i.heap / 1e6 }),
		figure("CPU % of a core", "%.2f", all, cpu),
		figure("goroutines", "%.0f", all, func(i idleness) float64 { return i.goroutines }),
		figure("connections", "%.0f", all, func(i idleness) float64 { return i.connections }),
	)
	pageCPU := func(i idleness) float64 { return i.page.cpu }
	pageMemory := func(i idleness) float64 { return i.page.resident / 1e6 }
	r.add(
		"page",
		fmt.Sprintf(
			"What %d viewers of the live page add to the same bridge, at %d changes per second. All of them have a tail.",
			pageViewers,
			pageChanges,
		),
		figure("CPU % of a core", "%.2f", all, pageCPU),
		figure("resident MB", "%.1f", all, pageMemory),
	)
	if scaled {
		return // the bounds are for the full number of resources
	}
	r.measure("many/memory", of(all, resident))
	r.measure("many/cpu", of(all, cpu))
	r.measure("page/cpu", of(all, pageCPU))
	r.measure("page/memory", of(all, pageMemory))
}

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// prepare makes proxies, destinations and the place of the state.
func (r *run) prepare(ctx context.Context) error {
	var err error
	r.api = sinktest.NewProxy(r.w.t, strings.TrimPrefix(r.w.cluster.APIServerURL(), "https://"))
	if r.kubeconfig, err = r.w.kubeconfig(r.dir, r.api.Addr()); err != nil {
		return err
	}
	r.state = filepath.Join(r.dir, "state")
	for _, step := range r.s.Steps {
		if step.Action == FillDisk {
			if err := os.MkdirAll(r.state, 0o700); err != nil {
				return err
			}
			if err := mount(r.state); err != nil {
				return err
			}
			break
		}
	}
	for namespace, zone := range r.config.Zones {
		if err := r.w.label(ctx, r.names[namespace], zone); err != nil {
			return err
		}
	}
	configs := []Config{r.s.Config}
	for _, step := range r.s.Steps {
		if step.Config != nil {
			configs = append(configs, *step.Config)
		}
	}
	for _, c := range configs {
		for _, s := range c.Sinks {
			if r.dests[s.Dest()] == nil {
				if err := r.destination(ctx, s); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *run) destination(ctx context.Context, s Sink) (err error) {
	d := &dest{kind: s.Kind, stream: r.name + "-" + s.Dest()}
	d.control = &dest{kind: Stream, stream: d.stream + "-control"}
	if s.Kind.OnKafka() {
		d.control.kind = Topic
	}
	r.dests[s.Dest()] = d
	if s.Kind.OnKafka() {
		if r.slots == len(r.w.slots) {
			return errors.New("there are more topics than listeners of the broker")
		}
		d.proxy = r.w.slots[r.slots]
		r.slots++
		return nil
	}
	d.proxy = sinktest.NewProxy(r.w.t, strings.TrimPrefix(natsserver.ClientURL(r.w.nats), "nats://"))
	if s.Kind != Stream {
		return nil
	}
	window := 2 * time.Minute
	if s.ShortWindow {
		window = time.Second
	}
	limit := int32(-1)
	if s.Limit {
		limit = messageLimit
	}
	for _, name := range []string{d.stream, d.control.stream} {
		_, err = r.w.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{name + ".>"}, Duplicates: window, MaxMsgSize: limit, Storage: jetstream.MemoryStorage,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// messageLimit is more than any object without its data has, and less than the data of some.
const messageLimit = 20 << 10

// mount puts a small file system in memory in a place.
func mount(dir string) error {
	if output, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w: %s", err, output)
	}
	return nil
}

// CanMount reports whether the disk of the state can be filled on this machine.
func CanMount() bool {
	dir, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	if mount(dir) != nil {
		return false
	}
	return exec.Command("umount", dir).Run() == nil
}

// clear ends what is left of the run, and removes its files unless it failed.
func (r *run) clear(failed bool) {
	if r.bridge != nil {
		_ = r.bridge.Kill()
	}
	r.background.Wait()
	r.api.Close()
	for _, d := range r.dests {
		if d.proxy == nil {
			continue
		}
		if d.kind.OnKafka() {
			d.proxy.Cut()
			d.proxy.Thaw() // for the next run
			continue
		}
		d.proxy.Close()
		name := d.stream
		if d.kind == Bucket {
			name = "KV_" + name
		}
		for _, stream := range []string{name, d.control.stream} {
			_ = r.w.js.DeleteStream(context.Background(), stream) // it would only take room
		}
	}
	if failed && r.w.keepDir != "" {
		_ = os.CopyFS(
			filepath.Join(r.w.keepDir, filepath.Base(r.dir)),
			os.DirFS(r.dir),
		) // for people; the socket can't be copied
	}
	_ = exec.Command("umount", r.state).Run() // if it was mounted
	_ = os.RemoveAll(r.dir)
}

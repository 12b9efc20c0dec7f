package informer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deltabridge/deltabridge/pkg/object"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// ErrFutureVersion is the error that a probe returns if the cluster has not reached a resourceVersion.
var ErrFutureVersion = errors.New("the cluster has not reached this resourceVersion; was etcd restored from a backup?")

// Unreachable is a resourceVersion that no cluster reaches. An informer that is to resume there lists, and reports a
// gap that goes back, as after a restore.
const Unreachable = "9223372036854775807" // the highest revision of etcd

// ProbeName is the name of the object that a probe requests. For the probe, RBAC needs to allow `get` for this name
// only.
const ProbeName = "deltabridge-probe"

// NewProbe returns a function for Config.Probe. The function requests an object that need not exist, at the given
// resourceVersion or later. If the cluster has not reached this resourceVersion, the API server returns 504 with the
// cause ResourceVersionTooLarge. For a watch, it would return no error and send no events (kubernetes#107457).
func NewProbe(client rest.Interface, source Source, namespaced bool) func(context.Context, string) error {
	namespace := source.Namespace
	if namespaced && namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return func(ctx context.Context, resourceVersion string) error {
		err := client.Get().AbsPath(ResourcePath(source.Resource, namespace), ProbeName).
			Param("resourceVersion", resourceVersion).MaxRetries(0).Do(ctx).Error()
		switch {
		case apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
			return ErrFutureVersion
		case err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err):
			return nil // the server has answered, or the watch will report the error
		default:
			return fmt.Errorf("cannot find out whether the cluster has reached resourceVersion %s: %w", resourceVersion, err)
		}
	}
}

// resume returns the list that replaces the first list if the informer has a checkpoint. It is an empty list at a
// resourceVersion that store.Replace recognises (see resumes). The Reflector then opens its watch there. resume returns
// nil if a real list is required because the first list was already read or begun, or because the cluster has not
// reached the resourceVersion.
func (l *observedListWatch) resume(ctx context.Context) (runtime.Object, error) {
	at := l.resumeAt
	if at == "" {
		return nil, nil
	}
	err := l.reach(ctx, verbWatch, func() error { return l.checkPosition(ctx, at) })
	ahead := errors.Is(err, ErrFutureVersion)
	if err != nil && !ahead {
		return nil, err
	}
	l.resumeAt = ""
	if ahead {
		return nil, nil
	}
	return &object.List{ListMeta: metav1.ListMeta{ResourceVersion: at}}, nil
}

// resumesAt returns the resourceVersion at which the informer opens its watch without a list, or "" if it lists first.
func (i *Informer) resumesAt() string {
	if i.config.Relist {
		return ""
	}
	return i.config.ResumeAt
}

// resumes reports whether a list is the empty one that resume returns. The watch from there may repeat changes that the
// previous process delivered. The caller must hold mu.
func (i *Informer) resumes(resourceVersion string, items int) bool {
	if i.HasSynced() || i.resumesAt() == "" || resourceVersion != i.config.ResumeAt || items > 0 {
		return false
	}
	i.synced.Store(true)
	i.resuming = true
	i.status.update(func(s *Status) { s.Resumed = true })
	i.status.reached(resourceVersion)
	i.log.Info("resumed from the checkpoint", "resourceVersion", resourceVersion, "objects", i.count.Load())
	return true
}

// ResumeGrace is how long a watch that continues from an earlier state may still bring changes that the previous
// process sent. The watch does not mark where these end, and its first bookmark can take a minute. kube-apiserver sends
// the headers of the response when it knows which changes its watch cache has since that state, and then sends these
// changes without a pause (k8s.io/apiserver: BeginStream in pkg/endpoints/handlers/watch.go, processInterval in
// pkg/storage/cacher/cache_watcher.go). Therefore the time begins with the headers. It is counted in ticks, because it
// must not pass while the process or the machine is suspended: a time.Ticker drops ticks that are not received.
const ResumeGrace = 5 * time.Second

const graceTick = 100 * time.Millisecond

// resumedWatch is a watch that may bring changes that the previous process sent. The informer's mu guards its fields.
type resumedWatch struct {
	watch.Interface

	informer *Informer
	left     time.Duration // how much of ResumeGrace is left
	behind   int           // number of handlers that are behind
	stop     context.CancelFunc
}

// watchOpened returns the watch for the Reflector. The caller has received the headers of w's response.
func (i *Informer) watchOpened(ctx context.Context, w watch.Interface) watch.Interface {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.resuming {
		return w
	}
	ctx, stop := context.WithCancel(ctx)
	r := &resumedWatch{Interface: w, informer: i, left: ResumeGrace, behind: i.behind(), stop: stop}
	i.resuming, i.resumed = false, r
	go func() {
		_ = wait.PollUntilContextCancel(ctx, graceTick, false, func(context.Context) (bool, error) { return r.tick(), nil })
	}()
	return r
}

// tick counts a tick. It reports whether no more ticks are required. A tick during a call of a handler does not count,
// because the watch brings nothing meanwhile.
func (w *resumedWatch) tick() (done bool) {
	i := w.informer
	if !i.mu.TryLock() {
		return false
	}
	defer i.mu.Unlock()
	if i.resumed != w {
		return true
	}
	w.left -= graceTick
	if done = i.caughtUp(); done {
		i.resumed = nil
		i.notifyCaughtUp()
	}
	return done
}

// reached is called when the handlers have a new position, with mu held. If fewer handlers are behind than before, the
// grace begins again. w may be nil.
func (w *resumedWatch) reached() {
	if w == nil {
		return
	}
	if behind := w.informer.behind(); behind < w.behind {
		w.behind, w.left = behind, ResumeGrace
	}
}

// Stop implements watch.Interface. The Reflector calls it when it has passed on everything that the watch has brought.
// If that is perhaps not everything that the previous process sent, the grace begins again when the next watch is open.
func (w *resumedWatch) Stop() {
	w.Interface.Stop()
	w.stop()
	i := w.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.resumed == w {
		i.resuming, i.resumed = true, nil
	}
}

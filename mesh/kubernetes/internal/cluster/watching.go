package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// watching runs informers, and knows whether the API server answers them. It is safe for concurrent use once it is started.
//
// What informers are answered does not say whether it does: client-go waits for a watch for minutes, and takes one that timed out for
// one without events. So the API server is also asked for its version, at intervals.
type watching struct {
	log *slog.Logger
	// ask asks the API server for something that costs nothing.
	ask     func(context.Context) error
	all     []*question
	stop    context.CancelFunc
	running sync.WaitGroup
	// noted has a value if there was an answer since start has looked.
	noted chan struct{}

	mu sync.Mutex
	// since is when an outage began, and logged is when it was logged last.
	since, logged time.Time
}

// question is what the API server is asked for: the objects of an informer, or its version.
type question struct {
	resource string
	informer cache.SharedIndexInformer // nil for the version
	handled  cache.DoneChecker         // done when the handler was called for all objects that there were at the start
	// mayLack reports whether an error says that there are no such objects, which is then as if there were none; nil: they are needed.
	mayLack func(error) bool
	// err is the last answer, and absent says that it was one that may be. Guarded by watching.mu.
	err    error
	absent bool
}

// reminder is the interval at which an outage is logged again.
const reminder = 5 * time.Minute

// askEvery is the interval at which the API server is asked, and answerTime bounds an answer. An outage is known within both.
const askEvery, answerTime = 5 * time.Second, 10 * time.Second

// add adds an informer with a handler.
func (w *watching) add(resource string, mayLack func(error) bool, of *cache.ListWatch, example runtime.Object, handler cache.ResourceEventHandler) cache.SharedIndexInformer {
	q := &question{resource: resource, mayLack: mayLack}
	noting := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := of.ListWithContext(ctx, o)
			w.note(ctx, q, err, time.Now())
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			events, err := of.WatchWithContext(ctx, o)
			if o.SendInitialEvents != nil && apierrors.IsInvalid(err) {
				return events, err // an API server without WatchList, of which the informer lists instead
			}
			w.note(ctx, q, err, time.Now())
			return events, err
		},
	}
	q.informer = cache.NewSharedIndexInformer(noting, example, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	_ = q.informer.SetTransform(slim)
	// note has all errors; client-go's own handler would log them again.
	_ = q.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if !errors.Is(err, io.EOF) {
			w.note(ctx, q, err, time.Now())
		}
	})
	registered, _ := q.informer.AddEventHandler(handler) // it fails only for an informer that was stopped
	q.handled = registered.HasSyncedChecker()
	w.all = append(w.all, q)
	return q.informer
}

// slim drops from objects what takes memory and is of no use.
func slim(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		m.Annotations = nil // only labels are used
	}
	if m, err := meta.Accessor(object); err == nil {
		m.SetManagedFields(nil)
		if annotations := m.GetAnnotations(); annotations["kubectl.kubernetes.io/last-applied-configuration"] != "" {
			annotations = maps.Clone(annotations)
			delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
			m.SetAnnotations(annotations)
		}
	}
	return object, nil
}

// note notes the answer to a question that was asked at a time, and decides whether there is an outage.
func (w *watching) note(ctx context.Context, q *question, err error, at time.Time) {
	if ctx.Err() != nil {
		return // the process ends
	}
	absent := q.mayLack != nil && q.mayLack(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	defer Signal(w.noted)
	if absent && !q.absent {
		w.log.Info("the cluster does not have this resource, or forbids it; going on without", "resource", q.resource, "error", err)
	}
	if absent || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		err = nil // it does answer: an informer may have to list again
	}
	q.err, q.absent = err, absent
	now := time.Now()
	failing := slices.ContainsFunc(w.all, func(q *question) bool { return q.err != nil })
	switch {
	case !failing && !w.since.IsZero():
		w.log.Info("the API server answers again", "after", now.Sub(w.since).Round(time.Millisecond))
		w.since, w.logged = time.Time{}, time.Time{}
	case failing:
		if w.since.IsZero() {
			w.since = at
		}
		if err != nil && now.Sub(w.logged) >= reminder {
			w.logged = now
			problem := "the API server does not answer"
			if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
				problem = "the API server does not let this server read what it needs; see the ClusterRole in deploy/kubernetes"
			}
			w.log.Error(problem+"; serving what is known", "since", w.since.Round(time.Millisecond), "resource", q.resource, "error", err)
		}
	}
}

// askVersion asks the API server for its version.
func (w *watching) askVersion(ctx context.Context, version *question) {
	asked := time.Now()
	asking, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	w.note(ctx, version, w.ask(asking), asked)
}

func (w *watching) goneSince() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since
}

// start starts the informers, and waits until all have their objects. Permissions that are missing are an error at once.
func (w *watching) start(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	informers, version := w.all, &question{resource: "version"}
	w.all = append(informers, version)
	for _, q := range informers {
		w.running.Go(func() { q.informer.RunWithContext(running) })
	}
	w.running.Go(func() {
		wait.NonSlidingUntilWithContext(running, func(ctx context.Context) { w.askVersion(ctx, version) }, askEvery)
	})
	for {
		var handled <-chan struct{}
		w.mu.Lock()
		var waiting, forbidden []string
		var failed error
		for _, q := range w.all {
			failed = cmp.Or(failed, q.err)
			if apierrors.IsForbidden(q.err) || apierrors.IsUnauthorized(q.err) {
				forbidden = append(forbidden, fmt.Sprintf("the API server does not let this server read %s: %v; see the ClusterRole in deploy/kubernetes", q.resource, q.err))
			}
			if q.informer != nil && !q.absent && !cache.IsDone(q.handled) {
				waiting, handled = append(waiting, q.resource), q.handled.Done()
			}
		}
		w.mu.Unlock()
		switch {
		case len(forbidden) > 0:
			return errors.New(strings.Join(slices.Compact(forbidden), "\n"))
		case len(waiting) == 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: waiting for %s: %w", ErrNoAnswer, strings.Join(slices.Compact(waiting), ", "), cmp.Or(failed, ctx.Err()))
		case <-handled:
		case <-w.noted:
		}
	}
}

func (w *watching) close() {
	if w.stop != nil {
		w.stop()
	}
	w.running.Wait()
}

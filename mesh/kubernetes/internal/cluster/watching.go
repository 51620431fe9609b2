package cluster

import (
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
	all     []*informer
	stop    context.CancelFunc
	running sync.WaitGroup
	// changed is closed and replaced when the state of an informer changes.
	mu      sync.Mutex
	changed chan struct{}
	// silent is the error of the last question, nil if it was answered.
	silent error
	// since is when an outage began, and logged is when it was logged last.
	since, logged time.Time
}

// informer is one, with what the API server answered it last.
type informer struct {
	cache.SharedIndexInformer
	resource string
	need     need
	// err is that of the last request, and absent says that it was one that the need allows. Guarded by watching.mu.
	err    error
	absent bool
}

// need says what becomes of an informer without its resource.
type need int

const (
	// required: the control plane does not start.
	required need = iota
	// optional: it is empty if the resource does not exist, as its CRD is not installed.
	optional
	// tolerated: it is empty if the resource is forbidden.
	tolerated
)

// reminder is the interval at which an outage is logged again.
const reminder = 5 * time.Minute

// askEvery is the interval at which the API server is asked, and answerTime bounds an answer. An outage is known within both.
const askEvery, answerTime = 5 * time.Second, 10 * time.Second

func newWatching(log *slog.Logger, ask func(context.Context) error) *watching {
	return &watching{log: log, ask: ask, changed: make(chan struct{})}
}

// add adds an informer.
func (w *watching) add(resource string, need need, of *cache.ListWatch, example runtime.Object) cache.SharedIndexInformer {
	i := &informer{resource: resource, need: need}
	noting := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := of.ListWithContext(ctx, o)
			w.note(ctx, i, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			events, err := of.WatchWithContext(ctx, o)
			if o.SendInitialEvents != nil && apierrors.IsInvalid(err) {
				return events, err // an API server without WatchList, of which the informer lists instead
			}
			w.note(ctx, i, err)
			return events, err
		},
	}
	i.SharedIndexInformer = cache.NewSharedIndexInformer(noting, example, 0, cache.Indexers{})
	_ = i.SetTransform(slim)
	// note has all errors; client-go's own handler would log them again.
	_ = i.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if !errors.Is(err, io.EOF) {
			w.note(ctx, i, err)
		}
	})
	w.all = append(w.all, i)
	return i
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

// note notes what a request was answered with.
func (w *watching) note(ctx context.Context, i *informer, err error) {
	if ctx.Err() != nil {
		return // the process ends
	}
	absent := i.need == optional && apierrors.IsNotFound(err) || i.need == tolerated && apierrors.IsForbidden(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if absent {
		if !i.absent {
			w.log.Info("the cluster does not have this resource, or forbids it; going on without", "resource", i.resource, "error", err)
		}
		err = nil
	}
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		err = nil // it does answer: the informer has to list again
	}
	i.err, i.absent = err, absent
	w.judge(i.resource, err, time.Now())
}

// judge decides whether there is an outage, after a request that was made at a time. The caller holds the lock.
func (w *watching) judge(resource string, err error, at time.Time) {
	close(w.changed)
	w.changed = make(chan struct{})
	now := time.Now()
	failing := w.silent != nil || slices.ContainsFunc(w.all, func(i *informer) bool { return i.err != nil })
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
			w.log.Error("the API server does not answer; serving what is known", "since", w.since.Round(time.Millisecond), "resource", resource, "error", err)
		}
	}
}

// keepAsking asks the API server, until the context ends.
func (w *watching) keepAsking(ctx context.Context) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		asked := time.Now()
		asking, cancel := context.WithTimeout(ctx, answerTime)
		err := w.ask(asking)
		cancel()
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		w.silent = err
		w.judge("version", err, asked)
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
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
	for _, i := range w.all {
		w.running.Go(func() { i.RunWithContext(running) })
	}
	w.running.Go(func() { w.keepAsking(running) })
	tick := time.NewTicker(20 * time.Millisecond) // HasSynced has no event
	defer tick.Stop()
	for {
		w.mu.Lock()
		changed := w.changed
		var waiting, forbidden []string
		for _, i := range w.all {
			if apierrors.IsForbidden(i.err) || apierrors.IsUnauthorized(i.err) {
				forbidden = append(forbidden, fmt.Sprintf("the API server does not let this server read %s: %v; see the ClusterRole in deploy/kubernetes", i.resource, i.err))
			}
			if !i.absent && !i.HasSynced() {
				waiting = append(waiting, i.resource)
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
			return fmt.Errorf("%w: waiting for %s: %w", ErrNoAnswer, strings.Join(slices.Compact(waiting), ", "), w.lastError(ctx))
		case <-changed:
		case <-tick.C:
		}
	}
}

// lastError is the error of a request, or that of the context.
func (w *watching) lastError(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range w.all {
		if i.err != nil {
			return i.err
		}
	}
	if w.silent != nil {
		return w.silent
	}
	return ctx.Err()
}

func (w *watching) close() {
	if w.stop != nil {
		w.stop()
	}
	w.running.Wait()
}

package xdsclient

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

var soak = flag.Duration("soak", 2*time.Second, "how long the soak test lasts, for each protocol")

// liar is a server that lies: it sends what is invalid, unasked for, doubled or
// of another type, leaves things out, sends errors and garbage, stalls, breaks
// streams, and restarts. What it never does is to keep the truth to itself for
// ever: once it is honest, it says all there is.
type liar struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	typ *ResourceType

	mu      sync.Mutex
	world   map[string]string
	version int
	honest  bool
	// changed is closed and replaced when the world changes.
	changed  chan struct{}
	listener *bufconn.Listener
	server   *grpc.Server
	serving  sync.WaitGroup
}

func (l *liar) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listener = bufconn.Listen(1 << 20)
	l.server = grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(l.server, l)
	server, listener := l.server, l.listener
	l.serving.Go(func() { _ = server.Serve(listener) })
}

func (l *liar) stop() {
	l.mu.Lock()
	server := l.server
	l.mu.Unlock()
	server.Stop()
}

func (l *liar) dial(ctx context.Context, _ string) (net.Conn, error) {
	l.mu.Lock()
	listener := l.listener
	l.mu.Unlock()
	return listener.DialContext(ctx)
}

// change changes the world.
func (l *liar) change(f func(world map[string]string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l.world)
	l.version++
	close(l.changed)
	l.changed = make(chan struct{})
}

// look returns the world as it is, and a channel that is closed when it changes.
func (l *liar) look() (world map[string]string, version string, honest bool, changed chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	world = make(map[string]string)
	for name, text := range l.world {
		world[name] = text
	}
	return world, fmt.Sprint(l.version), l.honest, l.changed
}

// lie spoils what a server is about to say. It returns an error if the stream is
// to break.
func (l *liar) lie(resources []*clusterv3.Cluster) ([]*clusterv3.Cluster, []*discoveryv3.ResourceError, error) {
	var errs []*discoveryv3.ResourceError
	name := fmt.Sprint("c", rand.IntN(soakWatches))
	switch rand.IntN(12) {
	case 0:
		return nil, nil, status.Error(codes.Unavailable, "at random")
	case 1:
		return nil, nil, nil
	case 2:
		resources = append(resources, cluster(name, "bad: at random"))
	case 3:
		resources = append(resources, cluster("unasked", "x"), cluster("", "nameless"))
	case 4:
		resources = append(resources, resources...)
	case 5:
		errs = append(errs, resourceError(name, codes.Code(rand.IntN(20)), "at random"))
	case 6:
		for _, c := range resources {
			errs = append(errs, resourceError(c.GetName(), codes.NotFound, "a contradiction"))
		}
	case 7:
		resources = append(resources, cluster(name, "panic"))
	case 8:
		if len(resources) > 0 {
			resources = resources[rand.IntN(len(resources)):]
		}
	case 9:
		resources = append(resources, cluster(name, "not what the world is like"))
	}
	return resources, errs, nil
}

func (l *liar) StreamAggregatedResources(wire discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	requests := make(chan *discoveryv3.DiscoveryRequest)
	go receive(wire.Context(), wire.Recv, requests)
	var names []string
	for n := 0; ; n++ {
		world, version, honest, changed := l.look()
		var resources []*clusterv3.Cluster
		var errs []*discoveryv3.ResourceError
		for _, name := range names {
			if text, ok := world[name]; ok {
				resources = append(resources, cluster(name, text))
			} else if honest {
				// To leave it out says nothing if there was an error for it (xRFC
				// TP3).
				errs = append(errs, resourceError(name, codes.NotFound, "it never was"))
			}
		}
		if !honest {
			var err error
			if resources, errs, err = l.lie(resources); err != nil {
				return err
			}
		}
		if names != nil {
			r := &discoveryv3.DiscoveryResponse{TypeUrl: l.typ.TypeURL, VersionInfo: version, Nonce: fmt.Sprint(n), ResourceErrors: errs}
			for _, c := range resources {
				a, _ := anyOf(c)
				r.Resources = append(r.Resources, a)
			}
			if !honest && rand.IntN(30) == 0 {
				r.TypeUrl = ""
			}
			if err := wire.Send(r); err != nil {
				return err
			}
		}
		for answered := true; answered; {
			select {
			case r := <-requests:
				answered = r.GetResponseNonce() != "" && len(r.GetResourceNames()) == len(names)
				names = r.GetResourceNames()
			case <-changed:
				answered = false
			case <-wire.Context().Done():
				return nil
			}
		}
	}
}

func (l *liar) DeltaAggregatedResources(wire discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	requests := make(chan *discoveryv3.DeltaDiscoveryRequest)
	go receive(wire.Context(), wire.Recv, requests)
	// sent has the text that the client has of what it is subscribed to, as far
	// as the server believes; unsure is none.
	const unsure, absent = "unsure", "absent"
	sent := map[string]string{}
	for n := 0; ; n++ {
		world, version, honest, changed := l.look()
		r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: l.typ.TypeURL, Nonce: fmt.Sprint(n)}
		var resources []*clusterv3.Cluster
		for name, old := range sent {
			text, ok := world[name]
			switch {
			case ok && old != text:
				resources = append(resources, cluster(name, text))
				sent[name] = text
			case !ok && old != absent:
				r.RemovedResources = append(r.RemovedResources, name)
				sent[name] = absent
			}
		}
		if !honest {
			var err error
			if resources, r.ResourceErrors, err = l.lie(resources); err != nil {
				return err
			}
			if rand.IntN(30) == 0 {
				r.TypeUrl = ""
			}
		}
		for _, c := range resources {
			a, _ := anyOf(c)
			r.Resources = append(r.Resources, &discoveryv3.Resource{Name: c.GetName(), Version: version, Resource: a})
		}
		if len(r.Resources)+len(r.RemovedResources)+len(r.ResourceErrors) > 0 {
			if err := wire.Send(r); err != nil {
				return err
			}
		}
		for idle := true; idle; {
			select {
			case r := <-requests:
				for _, name := range r.GetResourceNamesUnsubscribe() {
					delete(sent, name)
				}
				for _, name := range r.GetResourceNamesSubscribe() {
					sent[name] = unsure
					if v, ok := r.GetInitialResourceVersions()[name]; ok && v == version {
						sent[name] = world[name]
					}
					idle = false
				}
			case <-changed:
				idle = false
			case <-wire.Context().Done():
				return nil
			}
		}
	}
}

// receive passes on what comes until the stream ends.
func receive[T any](ctx context.Context, next func() (T, error), to chan<- T) {
	for {
		r, err := next()
		if err != nil {
			return
		}
		select {
		case to <- r:
		case <-ctx.Done():
			return
		}
	}
}

// lastHeard is a watcher that remembers what it heard last.
type lastHeard struct {
	mu      sync.Mutex
	text    string
	err     *Error
	ambient bool
	changed chan struct{}
}

func (w *lastHeard) ResourceChanged(value any, err error, done func()) {
	defer done()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text, w.err, w.ambient = "", nil, false
	if err != nil {
		w.err = err.(*Error)
	} else {
		w.text = value.(*clusterv3.Cluster).GetAltStatName()
	}
	w.tell()
}

func (w *lastHeard) AmbientError(err error, done func()) {
	defer done()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err, w.ambient = err.(*Error), true
	w.tell()
}

func (w *lastHeard) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// final reports whether the watcher knows the world: the text, or, if it is
// empty, that there is none.
func (w *lastHeard) final(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text == "" {
		return w.err != nil && w.err.Kind == KindDoesNotExist
	}
	return w.err == nil && w.text == text
}

const soakWatches = 50

// A lying, restarting server never makes a watcher miss the final state.
func TestSoak(t *testing.T) {
	t.Parallel()
	for _, variant := range []string{"SotW", "delta"} {
		for _, feature := range []string{"", "fail_on_data_errors"} {
			xdstest.Parallel(t, variant+" "+feature, func(t *testing.T) {
				features := []string{}
				if variant == "delta" {
					features = append(features, "delta")
				}
				if feature != "" {
					features = append(features, feature)
				}
				runSoak(t, features)
			})
		}
	}
}

func runSoak(t *testing.T, features []string) {
	types := newTestTypes()
	server := &liar{typ: types.clusters, world: map[string]string{}, changed: make(chan struct{})}
	server.start()
	t.Cleanup(func() { server.stop(); server.serving.Wait() })
	c, err := New(parseBootstrap(t, "passthrough:///liar", testutils.ServerFeatures(features...)),
		WithDialOptions(grpc.WithContextDialer(server.dial)), WithBackoff(quick), WithResourceTimeout(time.Second))
	xdstest.NoError(t, err)
	t.Cleanup(c.Close)

	watchers := make([]*lastHeard, soakWatches)
	stops := make([]func(), soakWatches)
	for i := range watchers {
		stops[i] = func() {}
	}
	watch := func(i int) {
		stops[i]()
		watchers[i] = &lastHeard{changed: make(chan struct{}, 1)}
		stops[i] = c.Watch(types.clusters, fmt.Sprint("c", i), watchers[i])
	}
	for i := range watchers {
		watch(i)
	}
	for end := time.Now().Add(*soak); time.Now().Before(end); {
		i := rand.IntN(soakWatches)
		name := fmt.Sprint("c", i)
		switch n := rand.IntN(100); {
		case n == 0:
			server.stop()
			server.start()
		case n < 20:
			watch(i)
		case n < 30:
			server.change(func(world map[string]string) { delete(world, name) })
		default:
			server.change(func(world map[string]string) { world[name] = fmt.Sprint("state ", rand.IntN(5)) })
		}
		<-time.After(time.Millisecond)
	}

	// The world is what it is from now on, and a new stream is honest.
	server.change(func(world map[string]string) {
		server.honest = true
		clear(world)
		for i := range soakWatches * 9 / 10 {
			world[fmt.Sprint("c", i)] = "final"
		}
	})
	server.stop()
	server.start()
	world, _, _, _ := server.look()
	deadline := time.After(patience)
	for i, w := range watchers {
		for name := fmt.Sprint("c", i); !w.final(world[name]); {
			select {
			case <-w.changed:
			case <-deadline:
				w.mu.Lock()
				defer w.mu.Unlock()
				t.Fatalf("%s is %q at last, and its watcher knows %q and error %v (ambient: %v)", name, world[name], w.text, w.err, w.ambient)
			}
		}
	}
	t.Logf("%+v", c.Stats())
}

package dpdswrapper_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/dpdswrapper"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

const (
	listenerType = "envoy.config.listener.v3.Listener"
	clusterType  = "envoy.config.cluster.v3.Cluster"

	// The DPDS resource of authority "a" lives with authority "x", which has
	// none, that of "b" with "a".
	dpdsA = "xdstp://x/" + xdsname.ConstraintsMap + "/for-a"
	dpdsB = "xdstp://a/" + xdsname.ConstraintsMap + "/for-b"

	authorities = `"authorities": {
		"a": {"dynamic_parameter_constraints_resource": "` + dpdsA + `"},
		"b": {"dynamic_parameter_constraints_resource": "` + dpdsB + `"},
		"x": {}
	}`
)

// name returns a new-style name.
func name(authority, typ, id string) string { return "xdstp://" + authority + "/" + typ + "/" + id }

// The server understands locators.
func config(more ...string) *bootstrap.Config {
	keys := append([]string{`"xds_servers": [{"server_uri": "passthrough:///xds.invalid:1", "channel_creds": [{"type": "insecure"}],
		"server_features": ["dynamic_parameter_constraints"]}]`}, more...)
	return must(bootstrap.Parse("test", []byte("{"+strings.Join(keys, ",")+"}")))
}

// fakeClient is a transport whose answers the test gives, for one target.
type fakeClient struct {
	*fakeTransport
	target string
}

type fakeTransport struct {
	t   testing.TB
	cfg *bootstrap.Config

	mu sync.Mutex
	// live are the watches in the order of their start.
	live []*fakeWatch
	// log holds what was started and stopped since it was last looked at.
	log    []string
	silent bool // no log
	held   bool // the layer above does not call done
}

var _ xdsclient.LocatorClient = (*fakeClient)(nil)

func newFakeClient(t testing.TB, cfg *bootstrap.Config) *fakeClient {
	return &fakeClient{&fakeTransport{t: t, cfg: cfg}, ""}
}

type fakeWatch struct {
	client      *fakeClient
	typ         *xdsclient.ResourceType
	name        string
	constraints dynparam.Constraints
	// A watch has one of the two.
	watcher    xdsclient.Watcher
	collection xdsclient.CollectionWatcher
	stopped    bool
}

func (w *fakeWatch) String() string {
	text := w.typ.Name + " " + w.name
	if w.typ == xdsresource.DynamicParameterConstraintsType {
		text = "DPDS " + w.name[strings.LastIndexByte(w.name, '/')+1:]
	}
	if !w.constraints.IsZero() {
		text += " " + w.constraints.String()
	}
	if w.client != nil && w.client.target != "" && w.client.target != "target" {
		text += " for " + w.client.target
	}
	return text
}

func (c *fakeClient) Bootstrap() *bootstrap.Config { return c.cfg }

func (c *fakeClient) ForTarget(target string) xdsclient.LocatorClient {
	return &fakeClient{c.fakeTransport, target}
}

func (c *fakeClient) WatchLocator(t *xdsclient.ResourceType, name string, constraints dynparam.Constraints, watcher xdsclient.Watcher) func() {
	return c.start(&fakeWatch{typ: t, name: name, constraints: constraints, watcher: watcher})
}

func (c *fakeClient) WatchCollectionLocator(t *xdsclient.ResourceType, name string, constraints dynparam.Constraints, watcher xdsclient.CollectionWatcher) func() {
	return c.start(&fakeWatch{typ: t, name: name, constraints: constraints, collection: watcher})
}

func (c *fakeClient) start(w *fakeWatch) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.client = c
	c.live = append(c.live, w)
	c.note("+" + w.String())
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if w.stopped {
			return
		}
		w.stopped = true
		c.live = slices.DeleteFunc(c.live, func(x *fakeWatch) bool { return x == w })
		c.note("-" + w.String())
	}
}

func (c *fakeClient) Batch(f func()) {
	c.mu.Lock()
	c.note("[")
	c.mu.Unlock()
	f()
	c.mu.Lock()
	c.note("]")
	c.mu.Unlock()
}

func (c *fakeTransport) note(text string) {
	if !c.silent {
		c.log = append(c.log, text)
	}
}

// expect compares what was started and stopped since the last time.
func (c *fakeTransport) expect(want ...string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if diff := cmp.Diff(want, c.log); diff != "" {
		c.t.Errorf("watches started and stopped (-want +got):\n%s", diff)
	}
	c.log = nil
}

// find returns the live watch that String describes by a prefix.
func (c *fakeTransport) find(prefix string) *fakeWatch {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.live {
		if strings.HasPrefix(w.String(), prefix) {
			return w
		}
	}
	c.t.Fatalf("%s is not watched; only %v", prefix, c.live)
	return nil
}

// once checks that done is called once, or notes each call if it is held.
func (w *fakeWatch) once(call func(done func())) {
	w.client.t.Helper()
	n, held := 0, w.client.held
	call(func() {
		if n++; held {
			w.client.note("done")
		}
	})
	if n != 1 && !held {
		w.client.t.Errorf("done was called %d times, want once", n)
	}
}

// change gives the watcher a resource, or an error in its place.
func (w *fakeWatch) change(value any, err error) {
	w.client.t.Helper()
	w.once(func(done func()) { w.watcher.ResourceChanged(value, err, done) })
}

func (w *fakeWatch) ambient(err error) {
	w.client.t.Helper()
	w.once(func(done func()) { w.watcher.AmbientError(err, done) })
}

// dpds answers a DPDS watch.
func (c *fakeTransport) dpds(id string, constraints dynparam.ByType) {
	c.t.Helper()
	c.find("DPDS "+id).change(&xdsresource.DynamicParameterConstraintsMap{Constraints: constraints}, nil)
}

// record has the calls to a watcher of the layer above.
type record struct {
	calls []string
	dones []func()
	held  *bool  // done is not called; nil: false
	after func() // if set, is called at the end of the next call
}

func (r *record) add(call string, done func()) {
	r.calls = append(r.calls, call)
	if r.held != nil && *r.held {
		r.dones = append(r.dones, done)
	} else {
		done()
	}
	if after := r.after; after != nil {
		r.after = nil
		after()
	}
}

// expect compares the calls since the last time.
func (r *record) expect(t testing.TB, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, r.calls); diff != "" {
		t.Errorf("calls to the watcher (-want +got):\n%s", diff)
	}
	r.calls = nil
}

// above is a watcher of the layer above.
type above struct{ record }

func (a *above) ResourceChanged(value any, err error, done func()) {
	if err != nil {
		a.add("!"+text(err), done)
	} else {
		a.add(fmt.Sprint(value), done)
	}
}

func (a *above) AmbientError(err error, done func()) { a.add("~"+text(err), done) }

// Errors of the transport, by kind.
func fault(kind xdsclient.ErrorKind, code codes.Code) error {
	return &xdsclient.Error{Kind: kind, Code: code, Err: errors.New("the reason")}
}

var (
	errDoesNotExist = fault(xdsclient.KindDoesNotExist, codes.NotFound)
	errNotFound     = fault(xdsclient.KindServer, codes.NotFound)
	errDenied       = fault(xdsclient.KindServer, codes.PermissionDenied)
	errInternal     = fault(xdsclient.KindServer, codes.Internal)
	errInvalid      = fault(xdsclient.KindInvalid, codes.Unavailable)
	errUnreachable  = fault(xdsclient.KindUnreachable, codes.Unavailable)
	errTimeout      = fault(xdsclient.KindTimeout, codes.Unavailable)
	errRefused      = fault(xdsclient.KindConfiguration, codes.Unavailable)
)

func text(err error) string {
	e := err.(*xdsclient.Error)
	if e.Kind == xdsclient.KindServer {
		return e.Code.String()
	}
	return string(e.Kind)
}

// fixture is the client that a wrapper over a fake has for a target.
type fixture struct {
	xdsclient.Client
	*fakeTransport
	wrapper *dpdswrapper.Wrapper
}

func newFixtureOver(c *fakeClient) *fixture {
	w := dpdswrapper.New(c)
	return &fixture{w.ForTarget("target"), c.fakeTransport, w}
}

func newFixture(t testing.TB, bootstrapKeys ...string) *fixture {
	t.Helper()
	return newFixtureOver(newFakeClient(t, config(bootstrapKeys...)))
}

// exact makes constraints of pairs of a key and the value it has to have.
func exact(pairs ...string) dynparam.Constraints { return must(dynparam.Exact(mapOf(pairs))) }

func mapOf(pairs []string) map[string]string {
	m := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func byType(constraints map[string]dynparam.Constraints) dynparam.ByType {
	return must(dynparam.NewByType(constraints))
}

// only has constraints for one type.
func only(typ string, pairs ...string) dynparam.ByType {
	return byType(map[string]dynparam.Constraints{typ: exact(pairs...)})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

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
	estats "google.golang.org/grpc/experimental/stats"

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
func config(t testing.TB, more ...string) *bootstrap.Config {
	t.Helper()
	keys := append([]string{`"xds_servers": [{"server_uri": "passthrough:///xds.invalid:1", "channel_creds": [{"type": "insecure"}],
		"server_features": ["dynamic_parameter_constraints"]}]`}, more...)
	cfg, err := bootstrap.Parse("test", []byte("{"+strings.Join(keys, ",")+"}"))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// fakeClient is a transport whose answers the test gives.
type fakeClient struct {
	t   testing.TB
	cfg *bootstrap.Config

	mu sync.Mutex
	// live are the watches in the order of their start.
	live []*fakeWatch
	// log holds what was started and stopped since it was last looked at.
	log    []string
	silent bool // no log
}

var _ xdsclient.LocatorClient = (*fakeClient)(nil)

type fakeWatch struct {
	client      *fakeClient
	target      string
	typ         *xdsclient.ResourceType
	name        string
	constraints dynparam.Constraints
	// One of them is set.
	watcher    xdsclient.Watcher
	collection xdsclient.CollectionWatcher
	index      int
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
	return text
}

func (c *fakeClient) Bootstrap() *bootstrap.Config { return c.cfg }

func (c *fakeClient) Watch(t *xdsclient.ResourceType, name string, w xdsclient.Watcher) func() {
	return c.WatchLocator(t, name, dynparam.Constraints{}, w)
}

func (c *fakeClient) ForTarget(target string) xdsclient.LocatorClient { return &fakeTarget{c, target} }

// fakeTarget is a fakeClient for one target.
type fakeTarget struct {
	*fakeClient
	target string
}

func (c *fakeTarget) Watch(t *xdsclient.ResourceType, name string, w xdsclient.Watcher) func() {
	return c.WatchLocator(t, name, dynparam.Constraints{}, w)
}

func (c *fakeTarget) WatchLocator(t *xdsclient.ResourceType, name string, constraints dynparam.Constraints, watcher xdsclient.Watcher) func() {
	return c.start(&fakeWatch{target: c.target, typ: t, name: name, constraints: constraints, watcher: watcher})
}

func (c *fakeTarget) WatchCollectionLocator(t *xdsclient.ResourceType, name string, constraints dynparam.Constraints, watcher xdsclient.CollectionWatcher) func() {
	return c.start(&fakeWatch{target: c.target, typ: t, name: name, constraints: constraints, collection: watcher})
}

func (*fakeClient) Attach(string, estats.MetricsRecorder) func() { return func() {} }

func (c *fakeClient) WatchCollection(t *xdsclient.ResourceType, name string, w xdsclient.CollectionWatcher) func() {
	return c.WatchCollectionLocator(t, name, dynparam.Constraints{}, w)
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
	w.client, w.index = c, len(c.live)
	c.live = append(c.live, w)
	c.note("+" + w.String())
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if w.stopped {
			return
		}
		w.stopped = true
		if c.silent { // in constant time
			last := c.live[len(c.live)-1]
			c.live[w.index], last.index = last, w.index
			c.live = c.live[:len(c.live)-1]
			return
		}
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

func (c *fakeClient) note(text string) {
	if !c.silent {
		c.log = append(c.log, text)
	}
}

// expect compares what was started and stopped since the last time.
func (c *fakeClient) expect(want ...string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if diff := cmp.Diff(want, c.log); diff != "" {
		c.t.Errorf("watches started and stopped (-want +got):\n%s", diff)
	}
	c.log = nil
}

// find returns the live watch that String describes by a prefix.
func (c *fakeClient) find(prefix string) *fakeWatch {
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

// doneCount counts the calls of one done.
type doneCount struct{ n int }

func (d *doneCount) done() { d.n++ }

// change says what a resource is. It returns the count of done.
func (w *fakeWatch) change(value any, err error) *doneCount {
	d := new(doneCount)
	w.watcher.ResourceChanged(value, err, d.done)
	return d
}

func (w *fakeWatch) ambient(err error) *doneCount {
	d := new(doneCount)
	w.watcher.AmbientError(err, d.done)
	return d
}

// dpds answers a DPDS watch and checks that it is done with.
func (c *fakeClient) dpds(id string, constraints dynparam.ByType) {
	c.t.Helper()
	if d := c.find("DPDS "+id).change(&xdsresource.DynamicParameterConstraintsMap{Constraints: constraints}, nil); d.n != 1 {
		c.t.Errorf("done was called %d times, want once", d.n)
	}
}

// above is a watcher of the layer above.
type above struct {
	calls []string
	dones []func()
	// keep says not to call done.
	keep bool
	// during is called during each call, if it is set.
	during func()
}

func (a *above) ResourceChanged(value any, err error, done func()) {
	if err != nil {
		a.take("!"+text(err), done)
	} else {
		a.take(fmt.Sprint(value), done)
	}
}

func (a *above) AmbientError(err error, done func()) { a.take("~"+text(err), done) }

func (a *above) take(call string, done func()) {
	a.calls = append(a.calls, call)
	if a.keep {
		a.dones = append(a.dones, done)
	} else {
		done()
	}
	if a.during != nil {
		a.during()
	}
}

// expect compares what the watcher was told since the last time.
func (a *above) expect(t testing.TB, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, a.calls); diff != "" {
		t.Errorf("calls to the watcher (-want +got):\n%s", diff)
	}
	a.calls = nil
}

// Errors of the transport, by what they say.
func fault(kind xdsclient.ErrorKind, code codes.Code) error {
	return &xdsclient.Error{Kind: kind, Code: code, Err: errors.New("the reason")}
}

var (
	errGone        = fault(xdsclient.KindDoesNotExist, codes.NotFound)
	errNotFound    = fault(xdsclient.KindServer, codes.NotFound)
	errDenied      = fault(xdsclient.KindServer, codes.PermissionDenied)
	errInternal    = fault(xdsclient.KindServer, codes.Internal)
	errInvalid     = fault(xdsclient.KindInvalid, codes.Unavailable)
	errUnreachable = fault(xdsclient.KindUnreachable, codes.Unavailable)
	errTimeout     = fault(xdsclient.KindTimeout, codes.Unavailable)
	errRefused     = fault(xdsclient.KindConfiguration, codes.Unavailable)
)

func text(err error) string {
	e := err.(*xdsclient.Error)
	if e.Kind == xdsclient.KindServer {
		return e.Code.String()
	}
	return e.Kind.String()
}

// fixture is a wrapper over a fake.
type fixture struct {
	*fakeClient
	*dpdswrapper.Wrapper
}

func (f *fixture) Bootstrap() *bootstrap.Config { return f.Wrapper.Bootstrap() }

func (f *fixture) WatchCollection(t *xdsclient.ResourceType, name string, w xdsclient.CollectionWatcher) func() {
	return f.Wrapper.WatchCollection(t, name, w)
}

func (f *fixture) Watch(t *xdsclient.ResourceType, name string, w xdsclient.Watcher) func() {
	return f.Wrapper.Watch(t, name, w)
}

func newFixture(t testing.TB, bootstrapKeys ...string) *fixture {
	t.Helper()
	c := &fakeClient{t: t, cfg: config(t, bootstrapKeys...)}
	return &fixture{c, dpdswrapper.New(c)}
}

// exact makes constraints of pairs of a key and the value it has to have.
func exact(pairs ...string) dynparam.Constraints {
	values := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return must(dynparam.Exact(values))
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

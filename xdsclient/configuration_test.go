package xdsclient

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// A watch that can never be served says so, and does no harm to others.
func TestRefusedWatches(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		listen(t, c, types.endpoints, "e")
		for name, tc := range map[string]struct {
			typ    *ResourceType
			name   string
			reason string
		}{
			"unknown authority": {types.clusters, "xdstp://nobody/envoy.config.cluster.v3.Cluster/a", `authority "nobody" is unknown; authorities has "known"`},
			"no authority":      {types.clusters, "xdstp:///envoy.config.cluster.v3.Cluster/a", `authority "", of names that start with "xdstp:///", is unknown`},
			"opaque":            {types.clusters, "xdstp:a", "expected xdstp://AUTHORITY/TYPE/ID"},
			"malformed":         {types.clusters, "xdstp://%zz/envoy.config.cluster.v3.Cluster/a", `authority: invalid URL escape "%zz"`},
			"another type":      {types.clusters, "xdstp://known/envoy.config.route.v3.RouteConfiguration/a", `the type in the name is "envoy.config.route.v3.RouteConfiguration", want "envoy.config.cluster.v3.Cluster"`},
			"directive":         {types.clusters, "xdstp://known/envoy.config.cluster.v3.Cluster/a#alt=xdstp://b/c/d", "the directive alt is not supported"},
			"endless":           {types.clusters, strings.Repeat("a", maxNameLength+1), "longer than 8192 bytes"},
			"no name":           {types.clusters, "", "a resource needs a name"},
			"wildcard":          {types.clusters, "*", `"*" asks for every resource`},
			"not UTF-8":         {types.clusters, "\xff", "not valid UTF-8"},
			"second type":       {newTestTypes().endpoints, "e", "two different ResourceTypes"},
		} {
			e, stop := listen(t, c, tc.typ, tc.name)
			err := e.fault(KindConfiguration)
			if !strings.Contains(err.Error(), tc.reason) || err.Code != codes.Unavailable || err.Resource != faults.Shorten(tc.name, maxNameLength) {
				t.Errorf("%s: got %v, want %q in it", name, err, tc.reason)
			}
			stop()
			stop()
		}
		s := server.stream()
		check(t, s.request(), want{typ: types.endpoints, names: []string{"e"}, node: true})
		s.quiet()
	}, testutils.Authority("known", "", nil))
}

// gRFC A47: the authority of a name decides which servers are asked, and a server
// that several authorities name has one stream.
func TestAuthoritiesChooseServers(t *testing.T) {
	ctx := testutils.Context(t)
	types := newTestTypes()
	main, own := xdstest.StartServer(t), xdstest.StartServer(t)
	c, err := New(parseBootstrap(t, main.Addr(),
		testutils.Authority("shared", "", nil),
		testutils.Authority("own", own.Addr(), nil),
		testutils.Authority("", "", nil)))
	xdstest.NoError(t, err)
	defer c.Close()
	const path = "/envoy.config.cluster.v3.Cluster/a"
	onMain := []string{"a", "xdstp://" + path, "xdstp://shared" + path}
	var stops []func()
	for _, name := range onMain {
		main.Set(t, cluster(name, "main"))
		e, stop := listen(t, c, types.clusters, name)
		stops = append(stops, stop)
		e.cluster("main")
	}
	own.Set(t, cluster("xdstp://own"+path, "own"))
	e, stopOwn := listen(t, c, types.clusters, "xdstp://own"+path)
	e.cluster("own")

	main.MustWait(ctx, t, xdstest.ForNames(types.clusters.TypeURL, onMain...))
	own.MustWait(ctx, t, xdstest.ForNames(types.clusters.TypeURL, "xdstp://own"+path))
	xdstest.Equal(t, "streams opened (one per server)",
		2, main.Attempts()+own.Attempts())
	// One authority leaving does not end what another uses.
	stops[2]()
	main.MustWait(ctx, t, xdstest.ForNames(types.clusters.TypeURL, onMain[:2]...))
	stopOwn()
	if err := own.WaitOpen(ctx, 0); err != nil {
		t.Error(err)
	}
	if err := main.WaitOpen(ctx, 1); err != nil {
		t.Error(err)
	}
	c.mu.Lock()
	xdstest.Equal(t, "authorities of the client", 2, len(c.authorities))
	c.mu.Unlock()
}

func TestNewRefusesWrongOptions(t *testing.T) {
	t.Parallel()
	cfg := parseBootstrap(t, "dns:///localhost:1")
	for name, tc := range map[string]struct {
		opts []Option
		want []string
	}{
		"backoff":  {[]Option{WithBackoff(backoff.Config{})}, []string{"WithBackoff"}},
		"timeout":  {[]Option{WithResourceTimeout(-1)}, []string{"WithResourceTimeout"}},
		"all told": {[]Option{WithBackoff(backoff.Config{}), WithResourceTimeout(0)}, []string{"WithBackoff", "WithResourceTimeout"}},
	} {
		_, err := New(cfg, tc.opts...)
		if err == nil || slices.ContainsFunc(tc.want, func(s string) bool { return !strings.Contains(err.Error(), s) }) {
			t.Errorf("%s: got error %v, want one with %q", name, err, tc.want)
		}
	}
	if _, err := New(nil); err == nil {
		t.Error("New took no bootstrap")
	}
}

// A connection that cannot even be tried is reported as an unreachable server.
func TestCredentialsThatCannotBeMade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, server := newTestTypes(), newScript(t)
		c := server.client(testutils.TopLevel("xds_servers", []map[string]any{{
			"server_uri": "passthrough:///script",
			"channel_creds": []map[string]any{{"type": "tls", "config": map[string]any{
				"ca_certificate_file": "/does/not/exist.pem",
			}}},
		}}))
		a, _ := listen(t, c, types.clusters, "a")
		server.open()
		if err := a.fault(KindUnreachable); !strings.Contains(err.Error(), "exist.pem") {
			t.Errorf("got %v, want the file in it", err)
		}
	})
}

// A server that is back after a long time is noticed within 36 s.
func TestDefaultBackoff(t *testing.T) {
	t.Parallel()
	o, err := newOptions(nil)
	xdstest.NoError(t, err)
	tries := transport.Retries{Config: o.backoff, Failed: 100}
	if wait := tries.Next(); wait < 24*time.Second || wait > 36*time.Second {
		t.Errorf("after 100 failures the client waits %v, want 30 s ± 20 %%", wait)
	}
}

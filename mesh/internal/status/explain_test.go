package status

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	adminpb "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

const acked = adminpb.ClientResourceStatus_ACKED

// resources are what a channel to "backend" needs.
func resources() (listener, routes, cluster, endpoints proto.Message) {
	mirrored := xdsmsg.PrefixRoute("/", "c")
	mirrored.GetRoute().RequestMirrorPolicies = []*routepb.RouteAction_RequestMirrorPolicy{{Cluster: "c"}}
	query := xdsmsg.PrefixRoute("/", "c")
	query.Match.QueryParameters = []*routepb.QueryParameterMatcher{{Name: "q"}}
	method := xdsmsg.PrefixRoute("/", "c")
	method.Match.Headers = []*routepb.HeaderMatcher{{Name: ":method", HeaderMatchSpecifier: &routepb.HeaderMatcher_PresentMatch{PresentMatch: true}}}
	return xdsmsg.DefaultListener("backend", "r"), xdsmsg.RouteConfig("r", "*", query, method, mirrored),
		xdsmsg.EDSCluster("c", ""), xdsmsg.SimpleEndpoints("c", "10.0.0.1:80")
}

func generic(name string, m proto.Message) *entry {
	a := xdsmsg.Any(m)
	return &entry{TypeUrl: a.GetTypeUrl(), Name: name, XdsConfig: a, VersionInfo: "1", ClientStatus: acked, LastUpdated: timestamppb.Now()}
}

func genericConfig() *statuspb.ClientConfig {
	l, r, c, e := resources()
	return &statuspb.ClientConfig{GenericXdsConfigs: []*entry{generic("backend", l), generic("r", r), generic("c", c), generic("c", e)}}
}

// changed returns the configuration of genericConfig with each of its entries changed.
func changed(change func(*entry)) *statuspb.ClientConfig {
	c := genericConfig()
	for _, one := range c.GenericXdsConfigs {
		change(one)
	}
	return c
}

// serving starts a process with these clients.
func serving(t *testing.T, configs ...*statuspb.ClientConfig) string {
	t.Helper()
	return canned{answer: func() []*statuspb.ClientConfig { return configs }}.serve(t)
}

func request() explain.Request {
	return explain.Request{Target: "xds:///backend", Method: "/pkg.Service/Method"}
}

func node(userAgent string) *corepb.Node { return &corepb.Node{Id: "n", UserAgentName: userAgent} }

// The resources of any form of the status are explained alike, by the rules of the client that has
// them.
func TestExplainAProcess(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]*statuspb.ClientConfig{
		"generic": genericConfig(),
		"wrapped": changed(func(e *entry) { e.XdsConfig = xdsmsg.Any(&discoverypb.Resource{Name: e.Name, Resource: e.XdsConfig}) }),
		// As grpc-js has them.
		"with names for type URLs": changed(func(e *entry) { e.TypeUrl = strings.TrimPrefix(e.TypeUrl, "type.googleapis.com/") }),
		"without types":            changed(func(e *entry) { e.TypeUrl = "" }),
	} {
		for _, tc := range []struct {
			userAgent string
			route     int
			mirrored  bool
		}{{"dynxds", 1, false}, {"gRPC Go", 2, true}, {"gRPC C-core", 2, true}, {"gRPC Node Pure JS", 0, false}} {
			t.Run(name+" "+tc.userAgent, func(t *testing.T) {
				t.Parallel()
				config := proto.Clone(config).(*statuspb.ClientConfig)
				config.Node = node(tc.userAgent)
				e, err := Explain(testutils.Context(t), Process{Address: serving(t, config)}, request())
				xdstest.NoError(t, err)
				taken := slices.IndexFunc(e.Routes, func(r explain.Route) bool { return r.Action != nil })
				if taken != tc.route {
					t.Fatalf("route %d is taken, want %d:\n%s", taken, tc.route, e.Text())
				}
				if e.Client.NodeID != "n" || e.Client.Name != tc.userAgent {
					t.Errorf("the client is %+v", e.Client)
				}
				if want := "cluster \"c\", priority 0, 1 endpoint, connection state unknown"; !strings.HasSuffix(e.Outcome, want) {
					t.Errorf("the outcome is %q, want %q", e.Outcome, want)
				}
				if tc.mirrored && !strings.Contains(e.Text(), "NOT IN FORCE: "+tc.userAgent+" ignores request_mirror_policies") {
					t.Errorf("it does not say that the client ignores mirrors:\n%s", e.Text())
				}
			})
		}
	}
}

// The client of the target is used, whatever others hold, and the Listener of each is surveyed by what it holds itself.
func TestExplainChoosesTheClientOfTheTarget(t *testing.T) {
	t.Parallel()
	other, own := genericConfig(), genericConfig()
	other.Node, other.ClientScope = &corepb.Node{Id: "other"}, "xds:///another"
	own.Node, own.ClientScope = &corepb.Node{Id: "own"}, "xds:///a, xds:///backend"
	e, err := Explain(testutils.Context(t), Process{Address: serving(t, other, own)}, request())
	if err != nil || e.Client.NodeID != "own" {
		t.Errorf("%+v, %v; want the client own", e, err)
	}
	_, surveys, _, err := Survey(testutils.Context(t), Process{Address: serving(t, other, own)}, "")
	if err != nil || len(surveys) != 2 || surveys[1].Client.NodeID != "own" {
		t.Errorf("surveys: %+v, %v; want that of the client own second", surveys, err)
	}
}

// Channels without a client, which DNS resolves for want of a bootstrap, have no resources to explain.
func TestExplainWithoutABootstrap(t *testing.T) {
	t.Parallel()
	bypassing := withState(t, nil)
	bypassing.GenericXdsConfigs, bypassing.ClientScope = bypassing.GenericXdsConfigs[:1], "xds:///backend"
	_, err := Explain(testutils.Context(t), Process{Address: serving(t, bypassing)}, request())
	cmdtest.ErrorHas(t, "Explain", err, "DNS resolves xds:///backend there", "no bootstrap")
	bypassing.ClientScope = "xds:///another"
	e, err := Explain(testutils.Context(t), Process{Address: serving(t, bypassing, genericConfig())}, request())
	if err != nil || len(e.Notes) != 0 {
		t.Errorf("beside a client: %+v, %v", e, err)
	}
}

// Entries of dynxds have the constraints of their variant after the name.
func TestExplainVariants(t *testing.T) {
	t.Parallel()
	config := genericConfig()
	config.Node = node("dynxds")
	config.GenericXdsConfigs[1].Name = "r {version=v2}"
	e, err := Explain(testutils.Context(t), Process{Address: serving(t, config)}, request())
	if err != nil || e.RouteConfig.Name != "r" || e.RouteConfig.Variant != "{version=v2}" {
		t.Errorf("%+v, %v; want the RouteConfiguration r of its variant", e, err)
	}
	for _, name := range []string{"r", "r {version=v2}"} {
		report, err := Ask(testutils.Context(t), Process{Address: serving(t, config)})
		xdstest.NoError(t, err)
		report.Apply(Filter{Name: name})
		if got := report.Lines().String(); !strings.Contains(got, "\n  RouteConfiguration r: ") || strings.Contains(got, "Listener") {
			t.Errorf("only %q:\n%s", name, got)
		}
	}
}

func TestExplainOddStatus(t *testing.T) {
	t.Parallel()
	change := func(f func(c []*entry)) *statuspb.ClientConfig {
		c := genericConfig()
		c.Node = node("dynxds")
		f(c.GenericXdsConfigs)
		return c
	}
	for _, tc := range []struct {
		given         string
		config        *statuspb.ClientConfig
		outcome, fail string
	}{
		{"no client", nil, "", "has no xDS client in use"},
		{"no resource", &statuspb.ClientConfig{}, "", `has no Listener "backend"; it has none`},
		{"another Listener", change(func(c []*entry) { c[0].Name = "other" }), "", `has no Listener "backend"; it has other`},
		{"another type", change(func(c []*entry) { c[0].XdsConfig = c[1].XdsConfig }), "", "has a resource of type"},
		{"a broken wrapper", change(func(c []*entry) {
			c[0].XdsConfig = &anypb.Any{TypeUrl: "type.googleapis.com/envoy.service.discovery.v3.Resource", Value: []byte{0xff}}
		}), "", "its wrapper cannot be read"},
		{"a broken resource", change(func(c []*entry) { c[0].XdsConfig.Value = []byte{0xff} }), "dynxds cannot use Listener", ""},
		{"contents left out", change(func(c []*entry) { c[1].XdsConfig = nil }), "the source does not say what is in RouteConfiguration", ""},
		{"still waiting", change(func(c []*entry) { c[1].XdsConfig, c[1].ClientStatus = nil, adminpb.ClientResourceStatus_REQUESTED }),
			"RPCs wait: the management server has not answered", ""},
		{"rejected", change(func(c []*entry) {
			c[1].XdsConfig, c[1].ClientStatus = nil, adminpb.ClientResourceStatus_NACKED
			c[1].ErrorState = &adminpb.UpdateFailureState{Details: "no domains"}
		}), "RPCs fail with UNAVAILABLE: the client has no RouteConfiguration \"r\": no domains", ""},
		{"as bytes", change(func(c []*entry) {
			for _, e := range c {
				e.XdsConfig = xdsmsg.Any(wrapperspb.Bytes(e.GetXdsConfig().GetValue()))
			}
		}), `route 1 → cluster "c"`, ""},
		{"no Cluster", change(func(c []*entry) { c[2].Name = "another"; c[2].XdsConfig = nil }), "the client has not asked for Cluster", ""},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			var configs []*statuspb.ClientConfig
			if tc.config != nil {
				configs = append(configs, tc.config)
			}
			e, err := Explain(testutils.Context(t), Process{Address: serving(t, configs...)}, request())
			switch {
			case tc.fail != "":
				cmdtest.ErrorHas(t, "Explain", err, tc.fail)
			case err != nil:
				t.Error(err)
			case !strings.Contains(e.Outcome, tc.outcome):
				t.Errorf("the outcome is %q, want %q", e.Outcome, tc.outcome)
			}
		})
	}
}

// A time that is none does not keep the explanation from being written as JSON.
func TestExplainOddTimes(t *testing.T) {
	t.Parallel()
	c := genericConfig()
	for i, one := range c.GenericXdsConfigs {
		one.LastUpdated = &timestamppb.Timestamp{Seconds: []int64{1 << 62, -1 << 62, 1 << 40, 0}[i], Nanos: int32(i - 2)}
		one.ErrorState = &adminpb.UpdateFailureState{LastUpdateAttempt: one.LastUpdated}
	}
	e, err := Explain(testutils.Context(t), Process{Address: serving(t, c)}, request())
	xdstest.NoError(t, err)
	if _, err := json.Marshal(e); err != nil {
		t.Error(err)
	}
}

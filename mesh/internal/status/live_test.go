package status

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/observe/csds"
	"github.com/dynxds/dynxds/testutils"
)

// withState returns genericConfig of a process of dynxds whose cluster is in this state.
func withState(t *testing.T, change func(*livestate.State, *livestate.Cluster)) *statuspb.ClientConfig {
	t.Helper()
	p50, p99 := 30.0, 1540.0
	c := &livestate.Cluster{
		Name: "c", Target: "xds:///backend", Health: livestate.Healthy, Phase: "serving", State: "READY", Endpoints: livestate.Endpoints{All: 1, Ready: 1},
		RPCs: &outcomes.Report{Retries: 1, Minute: outcomes.Minute{Seconds: 60, Started: 1200, Ended: 1200, P50: &p50, P99: &p99}},
	}
	state := &livestate.State{
		Time: time.Unix(60, 0), CountingSince: time.Unix(0, 0),
		Verdict:  livestate.Verdict{State: livestate.Healthy, Text: "Healthy: 1 cluster"},
		Servers:  []livestate.Server{{URI: "cp:443", Connected: true}},
		Channels: []livestate.Channel{{Number: 1, Target: "xds:///backend", Mode: "xDS", State: "READY"}},
		Clusters: []*livestate.Cluster{c},
	}
	if change != nil {
		change(state, c)
	}
	text, err := json.Marshal(state)
	xdstest.NoError(t, err)
	content := new(structpb.Struct)
	xdstest.NoError(t, content.UnmarshalJSON(text))
	config := genericConfig()
	config.GenericXdsConfigs = append([]*entry{{TypeUrl: stateType, Name: csds.StateName, XdsConfig: xdsmsg.Any(content), ClientStatus: acked, VersionInfo: "1"}}, config.GenericXdsConfigs...)
	return config
}

// failing has no connection to its endpoint.
func failing(s *livestate.State, c *livestate.Cluster) {
	s.Verdict = livestate.Verdict{State: livestate.Failing, Text: "Failing: 1 of 1 clusters"}
	s.Servers = append(s.Servers, livestate.Server{URI: "other:443", Error: "refused", Since: time.Unix(0, 0), NextAttempt: s.Time.Add(12 * time.Second)},
		livestate.Server{URI: "relay:443", Connected: true, BehindSince: s.Time.Add(-22 * time.Second)})
	s.Problems = []livestate.Problem{{Severity: livestate.Failing, Subject: `cluster "c"`, Text: "no endpoint\nanswers", Where: "a.yaml:3", Cluster: "c"}}
	c.Health, c.State, c.Error = livestate.Failing, "TRANSIENT_FAILURE", "connection refused"
	c.Endpoints = livestate.Endpoints{All: 1, Failing: 1}
	c.BadEndpoints = []inspect.Endpoint{{Addresses: []string{"10.0.0.1:80"}, Health: "HEALTHY", State: "TRANSIENT_FAILURE", Error: "connection refused", Since: time.Unix(0, 0)}, {State: "READY"}}
	other := c.RPCs.Minute
	other.Started, other.Ended, other.P50, other.P99 = 3, 0, nil, nil
	c.RPCs.Minute.Failed, c.RPCs.Last = 600, &outcomes.Failure{Time: time.Unix(0, 0), Code: "UNAVAILABLE", Text: "connection refused"}
	s.Certificates = []certfiles.Identity{{File: "a.pem", NotAfter: s.Time.Add(-3 * time.Hour)}, {File: "b.pem", NotAfter: s.Time.Add(77 * time.Hour)}}
	s.Splits = []livestate.Split{{Target: "xds:///backend", Route: "/", Clusters: []livestate.SplitCluster{{Name: "c", Minute: c.RPCs.Minute}, {Name: "c2\n\t", Minute: other}}}}
}

// A process that says how it is: its verdict first, then what is wrong, then clusters by their connections and RPCs.
func TestTextOfState(t *testing.T) {
	t.Parallel()
	r, err := Ask(testutils.Context(t), Process{Address: serving(t, withState(t, failing))})
	xdstest.NoError(t, err)
	const want = `client ""
  Failing: 1 of 1 clusters
  failing: cluster "c": no endpoint\nanswers  [a.yaml:3]
  control plane cp:443: connected
  control plane other:443: not connected: refused, since 1970-01-01 00:00:00 UTC, next attempt in about 12 s
  control plane relay:443: relay connected; its control plane unreachable for 22 s
  certificate a.pem: expired 3 h ago, at 1969-12-31 21:01:00 UTC
  certificate b.pem: expires in 3 days, at 1970-01-04 05:01:00 UTC
  channel 1 xds:///backend: READY, xDS
  cluster c: failing, 0 of 1 endpoint connected, 1 failing: connection refused; 1 endpoint in format "1" cannot be read; 1,200 RPCs in 60 s, 600 failed (50.0 %), p50 30 ms, p99 1.5 s, 1 retry; last error 1970-01-01 00:00:00 UTC: UNAVAILABLE: connection refused
    endpoint 10.0.0.1:80: TRANSIENT_FAILURE, since 1970-01-01 00:00:00 UTC: connection refused
  route / of xds:///backend:
    c       20.0 RPCs/s  50.0 % failed  p50 30 ms  p99 1.5 s
    c2\n\t  0.1 RPCs/s   0 % failed     p50 -      p99 -
  Listener backend: ACKED`
	if !strings.HasPrefix(r.Lines().String(), want) || strings.Contains(r.Lines().String(), csds.StateName) {
		t.Errorf("got\n%s\nwant\n%s…", r.Lines().String(), want)
	}
	if !r.Failing() {
		t.Error("it is not failing")
	}
	r.Apply(Filter{Name: "c*", State: "Failing"})
	if got := r.Lines().String(); strings.Contains(got, "Listener") || strings.Contains(got, "control plane") || !strings.Contains(got, "\n  cluster c: failing") {
		t.Errorf("filtered:\n%s", got)
	}
}

// A process at a glance: its verdict, and a line for each cluster.
func TestTop(t *testing.T) {
	t.Parallel()
	top, err := AskTop(testutils.Context(t), Process{Address: serving(t, withState(t, func(s *livestate.State, c *livestate.Cluster) {
		failing(s, c)
		s.Clusters = append(s.Clusters, nil, &livestate.Cluster{Name: "idle\n", Target: "xds:///backend", Health: livestate.Idle})
	}))})
	xdstest.NoError(t, err)
	xdstest.Equal(t, "the text", `client ""
  Failing: 1 of 1 clusters
  CLUSTER  TARGET          STATE    ENDPOINTS                             RPCs/s  ERRORS  P99
  c        xds:///backend  failing  0 of 1 endpoint connected, 1 failing  20.0    50.0 %  1.5 s
  idle\n   xds:///backend  idle     no endpoints                          -       -       -
`, top.Lines().String())
	if top, err = AskTop(testutils.Context(t), Process{Address: serving(t, genericConfig())}); err != nil || !strings.Contains(top.Lines().String(), "connection state unknown") {
		t.Errorf("of another process: %v, %v", top, err)
	}
}

// A process that counts RPCs from now on is asked again once it has counted some, if there is time.
func TestTheFirstLook(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		given         string
		patience      time.Duration
		countingSince time.Time
		failing       bool
	}{
		{"just begun", time.Minute, time.Time{}, true}, {"begun by another client", time.Minute, time.Unix(59, 0), true},
		{"counted", time.Minute, time.Unix(58, 0), false}, {"no time", 2 * sample, time.Time{}, false},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			first, then := withState(t, func(s *livestate.State, _ *livestate.Cluster) { s.CountingSince = tc.countingSince }), withState(t, failing)
			addr := canned{answer: func() []*statuspb.ClientConfig {
				if asked.Add(1) == 1 {
					return []*statuspb.ClientConfig{first}
				}
				return []*statuspb.ClientConfig{then}
			}}.serve(t)
			ctx, cancel := context.WithTimeout(t.Context(), tc.patience)
			defer cancel()
			r, err := Ask(ctx, Process{Address: addr})
			xdstest.NoError(t, err)
			if r.Failing() != tc.failing {
				t.Errorf("it is failing: %t, want %t", r.Failing(), tc.failing)
			}
		})
	}
}

// The answer about an RPC says where it arrives, not where the control plane thinks that it could.
func TestExplainSaysWhatIsConnected(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		given string
		state func(*livestate.State, *livestate.Cluster)
		want  []string
	}{
		{"healthy", nil, []string{`cluster "c", priority 0, 1 of 1 endpoint connected` + "\n", "10.0.0.1:80  HEALTHY  weight 1  READY", "RPCs         1,200 RPCs in 60 s, p50"}},
		{"failing", failing, []string{`cluster "c", where they fail with UNAVAILABLE: connection refused`, "10.0.0.1:80  HEALTHY  weight 1  TRANSIENT_FAILURE  connection refused", "connections  0 of 1 endpoint connected, 1 failing"}},
		{"ejected", func(_ *livestate.State, c *livestate.Cluster) {
			c.Endpoints = livestate.Endpoints{All: 1, Ejected: 1}
			c.BadEndpoints = []inspect.Endpoint{{Addresses: []string{"10.0.0.1:80"}, Health: "HEALTHY", State: "READY", Ejection: &inspect.Ejection{Method: "success_rate"}}}
		}, []string{"0 of 1 endpoint connected, 1 ejected", "READY, ejected by success_rate"}},
		{"connecting", func(_ *livestate.State, c *livestate.Cluster) {
			c.State, c.Endpoints = "CONNECTING", livestate.Endpoints{All: 1, Connecting: 1}
		}, []string{"0 of 1 endpoint connected, 1 connecting", "10.0.0.1:80  HEALTHY  weight 1\n"}},
		{"of another target", func(s *livestate.State, c *livestate.Cluster) { c.Target, s.ClustersLeftOut = "xds:///other", 1 }, []string{"connections  connection state unknown, as the process tells of its worst clusters only"}},
		{"without its server", func(s *livestate.State, _ *livestate.Cluster) {
			s.Servers[0] = livestate.Server{URI: "cp:443", Error: "gone"}
		},
			[]string{"management server cp:443 is unreachable: gone"}},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			e, err := Explain(testutils.Context(t), Process{Address: serving(t, withState(t, tc.state))}, request())
			xdstest.NoError(t, err)
			for _, want := range tc.want {
				if !strings.Contains(e.Text(), want) {
					t.Errorf("the text lacks %q:\n%s", want, e.Text())
				}
			}
			if strings.Contains(e.Text(), "1 of 1\n") {
				t.Errorf("health is counted as connections:\n%s", e.Text())
			}
		})
	}
}

package clients

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
	"github.com/dynxds/dynxds/mesh/internal/styled"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replica serves the pages of a replica with the given streams.
func replica(t *testing.T, id string, streams ...controlplane.ClientStatus) Replica {
	return Source{ID: id}.serve(t, streams...)
}

func (s Source) serve(t *testing.T, streams ...controlplane.ClientStatus) Replica {
	t.Helper()
	s.Streams = func() []controlplane.ClientStatus { return streams }
	server := httptest.NewServer(Handler(s))
	t.Cleanup(server.Close)
	return Replica{Admin: strings.TrimPrefix(server.URL, "http://"), ID: s.ID}
}

// gone is a replica that does not answer.
func gone(t *testing.T) Replica {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	defer l.Close()
	return Replica{Admin: l.Addr().String()}
}

func client(id string, types ...controlplane.TypeStatus) controlplane.ClientStatus {
	return controlplane.ClientStatus{
		Node: &corepb.Node{Id: id, Cluster: "shop", UserAgentName: "agent"}, Since: time.Now().Add(-2*time.Hour - 3*time.Minute - 15*time.Second),
		Peer: &net.TCPAddr{IP: net.IPv4(10, 1, 0, 7), Port: 40112}, Types: types,
	}
}

func nack(version, message string) *controlplane.NACK {
	return &controlplane.NACK{Version: version, Err: status.New(codes.InvalidArgument, message)}
}

func errorOf(name, message string) controlplane.ErrorStatus {
	return controlplane.ErrorStatus{Name: name, Err: status.New(codes.NotFound, message)}
}

// The table has all clients of all replicas that answer, and the others are named.
func TestFleet(t *testing.T) {
	t.Parallel()
	delta := client("a",
		controlplane.TypeStatus{
			TypeURL: xdsmsg.ClusterType, Names: []string{"c", "d"}, Reply: controlplane.ReplyACK, SentVersion: "17", ACKedVersion: "17",
			NACK:     nack("3", "long mended"),
			Locators: []controlplane.Locator{{Name: "c", Constraints: xdstest.Constraints("env=prod")}},
			Errors: []controlplane.ErrorStatus{
				{Name: "d", Constraints: xdstest.Constraints("env=prod"), Err: status.New(codes.NotFound, "none")},
			},
			Sent: []controlplane.SentResource{{Locator: controlplane.Locator{Name: "c", Constraints: xdstest.Constraints("env=prod")}, Version: "5cbf"}},
		},
		controlplane.TypeStatus{
			TypeURL: xdsmsg.EndpointType, Names: []string{"c"}, Reply: controlplane.ReplyAwaited, SentVersion: "18", ACKedVersion: "17",
			SentAt: time.Now().Add(-90 * time.Second),
		},
		controlplane.TypeStatus{TypeURL: xdsmsg.ListenerType, Wildcard: true},
	)
	delta.Protocol = controlplane.ProtocolDelta
	refusing := client("b\x1b[2J", controlplane.TypeStatus{
		TypeURL: xdsmsg.RouteType, Names: []string{"r"}, Reply: controlplane.ReplyNACK, SentVersion: "17", ACKedVersion: "16",
		NACK: nack("17", "bad\x1b[31m route\nfake: line"), Refusing: true,
	}, controlplane.TypeStatus{TypeURL: xdsmsg.ClusterType, Names: []string{"c"}, Reply: controlplane.ReplyACK, SentVersion: "17", ACKedVersion: "17"})
	first, second, third := replica(t, "first", delta), replica(t, "second", refusing, client("silent")), gone(t)
	ctx := testutils.Context(t)

	fleet := Ask(ctx, []Replica{first, third, second, {ID: "shy"}}, false, time.Minute)
	var got []string
	for line := range strings.Lines(fleet.Lines().String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	xdstest.Equal(t, "the table", []string{
		"NODE CLUSTER ADDRESS REPLICA SINCE STREAM TYPE NAMES ACKED STATE",
		"a shop 10.1.0.7:40112 " + first.Admin + " 2 h delta TP2 Cluster 2 17 ACKed",
		"ClusterLoadAssignment 1 17 late: 18 sent 90 s ago",
		"Listener * - nothing sent",
		`b\x1b[2J shop 10.1.0.7:40112 ` + second.Admin + " 2 h SotW RouteConfiguration 1 16 NACKed 17",
		"Cluster 1 17 ACKed",
		"silent shop 10.1.0.7:40112 " + second.Admin + " 2 h SotW - - - -",
		"", "Refused:",
		`b\x1b[2J (10.1.0.7:40112): RouteConfiguration, version 17: bad\x1b[31m route\nfake: line`,
		"", "Errors in place of resources:",
		`a (10.1.0.7:40112): Cluster "d" with {env=prod}: NotFound: none`,
		"", "3 client streams at 2 replicas: 1 in sync, 1 behind, 1 refusing; 2 replicas did not answer",
	}, got)
	fleet.Resources = true
	if text := fleet.Lines().String(); !regexp.MustCompile(`(?m)^ +c {env=prod} +5cbf$`).MatchString(text) {
		t.Errorf("the table lacks the version of a resource:\n%s", text)
	}
	cmdtest.ErrorHas(t, "the fleet", fleet.Err(), "2 of 4 replicas did not answer", third.Admin+": dial tcp", "shy: it runs without --admin")

	refusals := Ask(ctx, []Replica{first, second}, true, time.Minute)
	if err := refusals.Err(); err != nil || len(refusals.Clients) != 1 || len(refusals.Clients[0].Types) != 1 || refusals.Clients[0].Types[0].Error == "" {
		t.Errorf("what is refused: %+v, %v; want the routes alone", refusals, err)
	}
}

// The destinations of all replicas are one table, the worst first, with the versions that clients have and the RPCs that they report.
func TestTop(t *testing.T) {
	t.Parallel()
	sent := func(name, version string) controlplane.SentResource {
		return controlplane.SentResource{Locator: controlplane.Locator{Name: name}, Version: version}
	}
	following := func(id, version string) controlplane.ClientStatus {
		return client(id, controlplane.TypeStatus{TypeURL: xdsmsg.ListenerType, Names: []string{"shop"}, Reply: controlplane.ReplyACK},
			controlplane.TypeStatus{TypeURL: xdsmsg.ClusterType, Names: []string{"shop", "xdstp://a/envoy.config.cluster.v3.Cluster/b/bank"}, Reply: controlplane.ReplyACK, Sent: []controlplane.SentResource{
				sent("shop", version), sent("xdstp://a/envoy.config.cluster.v3.Cluster/b/bank", "1"),
			}})
	}
	refusing := func(id string) controlplane.ClientStatus {
		return client(id, controlplane.TypeStatus{
			TypeURL: xdsmsg.RouteType, Names: []string{"bad\x1b[2J"}, Reply: controlplane.ReplyNACK, NACK: nack("17", "no\x1b[31m taste"), Refusing: true,
		})
	}
	late := client("late", controlplane.TypeStatus{TypeURL: xdsmsg.EndpointType, Names: []string{"slow"}, NameCount: 21, Reply: controlplane.ReplyAwaited, SilentSince: time.Now().Add(-time.Minute)})
	serve := func(loads []controlplane.RecentLoad, state planestate.State, streams ...controlplane.ClientStatus) Replica {
		return Source{ID: "r" + state.Waiting, Loads: func() []controlplane.RecentLoad { return loads }, Configuration: func() planestate.State { return state }}.serve(t, streams...)
	}
	valid := planestate.State{Place: "folder", Published: &planestate.Published{}}
	waits := planestate.State{Place: "folder", Published: &planestate.Published{}, Waiting: "it withdraws much"}
	first := serve([]controlplane.RecentLoad{
		{Cluster: "shop", Issued: 600, Succeeded: 580, Failed: 20, Over: time.Minute},
		{Cluster: "xdstp://a/envoy.config.cluster.v3.Cluster/b/bank", Issued: 60, Succeeded: 54, Over: time.Minute},
	}, valid, following("1", "old"), following("2", "new"), refusing("x"))
	second := serve([]controlplane.RecentLoad{{Cluster: "shop", Issued: 590, Succeeded: 590, Dropped: 10, Over: time.Minute}}, waits, following("3", "new"), refusing("y"), late)

	top := AskTop(testutils.Context(t), []Replica{first, second, first, gone(t)}, time.Minute)
	var got []string
	for line := range strings.Lines(top.Lines().String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	xdstest.Equal(t, "the table", []string{
		"6 client streams at 2 replicas: 3 in sync, 1 behind, 2 refusing; 2 replicas did not answer",
		"clients: 6 agent", "",
		"DESTINATION CLIENTS IN SYNC BEHIND REFUSING VERSIONS RPCs/s ERRORS P99",
		`bad\x1b[2J 2 0 0 2 0 - - -`,
		"shop 3 3 0 0 2 20.0 2.5 % -",
		"slow 1 0 1 0 0 - - -",
		"b/bank 3 3 0 0 1 1.0 0 % -",
		"of 1 client with many names, only some are counted here: dynxds clients has their number", "", "Several versions:", "Cluster shop: new (2), old (1)",
		"", "Refused:", `x and 1 more: RouteConfiguration, version 17: no\x1b[31m taste`,
		"", "Configuration:", second.Admin + ": a large withdrawal of services waits: it withdraws much",
	}, got)
	cmdtest.ErrorHas(t, "the answer", top.Err(), "2 of 4 replicas did not answer", "it is the same replica as "+first.Admin)
	xdstest.Equal(t, "the style of what clients refuse", styled.Bad, top.Lines()[4].Style)
}

// What an overview has is bounded, whatever clients subscribe to.
func TestBoundsOfAnOverview(t *testing.T) {
	t.Parallel()
	var streams []controlplane.ClientStatus
	for i := range 2 * maxDestinations {
		id := fmt.Sprint(i)
		c := client(id, controlplane.TypeStatus{TypeURL: xdsmsg.ClusterType, Names: []string{id, "all"}, NACK: nack("1", id), Refusing: true,
			Sent: []controlplane.SentResource{{Locator: controlplane.Locator{Name: "all"}, Version: id}}})
		c.Node.UserAgentVersionType = &corepb.Node_UserAgentVersion{UserAgentVersion: id}
		streams = append(streams, c)
	}
	o := OverviewOf(streams, nil)
	all := o.Destinations[0]
	if len(o.Destinations) != maxDestinations || o.MoreDestinations != maxDestinations+1 || len(o.Refusals) != maxRefusals || o.MoreRefusals != 2*maxDestinations-maxRefusals ||
		len(o.Agents) != maxAgents || o.MoreAgents != 2*maxDestinations-maxAgents || all.Name != "all" || len(all.Versions) != maxVersions || all.MostVersions != 2*maxDestinations || all.MoreVersions != 2*maxDestinations-maxVersions {
		t.Errorf("%d and %d destinations, %d and %d refusals, %d agents; of %q %d and %d versions", len(o.Destinations), o.MoreDestinations,
			len(o.Refusals), o.MoreRefusals, len(o.Agents), all.Name, len(all.Versions), all.MoreVersions)
	}
}

// Without an answer nothing is known of clients, which is not the same as that there are none.
func TestNoReplicaAnswers(t *testing.T) {
	t.Parallel()
	for want, replicas := range map[string][]Replica{
		"no replica is running\n":                                                                    nil,
		"1 replica did not answer: its clients are unknown\n":                                        {gone(t)},
		"2 replicas did not answer: its clients are unknown\n":                                       {gone(t), {ID: "shy"}},
		"0 client streams at 1 replica: 0 in sync, 0 behind, 0 refusing; 1 replica did not answer\n": {gone(t), replica(t, "there")},
	} {
		fleet := Ask(testutils.Context(t), replicas, false, time.Minute)
		xdstest.Equal(t, "the summary", want, fleet.Lines().String())
	}
}

// Another process that has the address of a replica does not count for it.
func TestAnotherReplica(t *testing.T) {
	t.Parallel()
	at := replica(t, "this")
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	defer page.Close()
	for want, r := range map[string]Replica{
		`expected replica that there, found "this"`:         {Admin: at.Admin, ID: "that"},
		"404 page not found; is it the address":             {Admin: strings.TrimPrefix(other.URL, "http://")},
		"looking for beginning of value; is it the address": {Admin: strings.TrimPrefix(page.URL, "http://")},
		"want HOST:PORT": {Admin: "localhost"},
		"no such host":   {Admin: strings.TrimPrefix(strings.Replace(at.Admin, ":", "/other?x=:", 1), "http://")},
	} {
		fleet := Ask(testutils.Context(t), []Replica{r}, false, time.Minute)
		cmdtest.ErrorHas(t, fmt.Sprintf("%+v", r), fleet.Err(), want)
	}
}

// What clients send is shortened before it leaves the replica.
func TestBounds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 1<<14)
	s := client(long)
	s.Node.Cluster, s.Node.UserAgentName = long, long
	for i := range 3 * maxTypes {
		typ := controlplane.TypeStatus{TypeURL: fmt.Sprint(i, long), NACK: nack("1", long), Refusing: true}
		for range 3 * maxErrors {
			typ.Errors = append(typ.Errors, errorOf(long, long))
		}
		for range 3 * maxResources {
			typ.Sent = append(typ.Sent, controlplane.SentResource{Locator: controlplane.Locator{Name: long}, Version: long})
		}
		s.Types = append(s.Types, typ)
	}
	content, err := json.Marshal(ViewOf(&s))
	xdstest.NoError(t, err)
	if most := maxTypes * ((maxErrors+2)*(maxName+maxError+200) + maxResources*(2*maxName+100)); len(content) > most {
		t.Errorf("the client has %d bytes, want at most %d", len(content), most)
	}
	c := ViewOf(&s)
	if c.MoreTypes != 2*maxTypes || c.Types[0].MoreErrors != 2*maxErrors || c.Standing != Refusing.String() {
		t.Errorf("%d types and %d errors are left out", c.MoreTypes, c.Types[0].MoreErrors)
	}
}

// Two peers that read nothing keep nobody else from an answer, and all that ask within a second share one.
func TestOthersAreAnswered(t *testing.T) {
	t.Parallel()
	var made atomic.Int64
	h := Handler(Source{ID: "x", Streams: func() []controlplane.ClientStatus {
		made.Add(1)
		return []controlplane.ClientStatus{client("a")}
	}})
	blocked := make(chan struct{})
	var writing sync.WaitGroup
	for range 2 {
		w := &deafWriter{ResponseRecorder: httptest.NewRecorder(), writes: make(chan struct{}), blocked: blocked}
		writing.Go(func() { h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/clients", nil)) })
		<-w.writes
	}
	for range 50 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/clients", nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"node":"a"`) {
			t.Errorf("another request got %d: %s", w.Code, w.Body)
		}
	}
	if made.Load() > 25 {
		t.Errorf("%d answers were made for 52 requests", made.Load())
	}
	close(blocked)
	writing.Wait()
}

// deafWriter is the connection of a peer that does not read.
type deafWriter struct {
	*httptest.ResponseRecorder
	writes, blocked chan struct{}
}

func (w *deafWriter) Write(p []byte) (int, error) {
	close(w.writes)
	<-w.blocked
	return len(p), nil
}

// What a replica says about its documents is above what clients say, with no control of the terminal.
func TestPrintOfAFaultyConfiguration(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC)
	states := map[string]planestate.State{
		"version 7, published at 2026-07-01T10:00:00Z: 2 services, 1 policy": {
			Place: "folder", Published: &planestate.Published{At: since, Version: 7, Services: 2, Policies: 1},
		},
		"version 7, published at 2026-07-01T10:00:00Z: 2 services, 1 policy\n  REPLICA: 2 errors in what is published; some clients get errors in place of resources, or their RPCs fail: a.yaml:1: error: no\n" +
			"  REPLICA: a.yaml:2: warning: no effect\n  REPLICA: and 2 more reports": {
			Place: "folder", Published: &planestate.Published{At: since, Version: 7, Services: 2, Policies: 1, Errors: 2, Warnings: 2, Reports: []string{"a.yaml:1: error: no", "a.yaml:2: warning: no effect"}},
		},
		"the folder has 2 errors since 2026-07-01T10:00:00Z; nothing is published yet: a.yaml:1: \\x1b[31mred": {
			Place: "folder", FaultySince: &since, Faults: 2, First: "a.yaml:1: \x1b[31mred",
		},
		"the folder has 1 error since 2026-07-01T10:00:00Z; published nevertheless (--permissive): a.yaml:1: no": {
			Place: "folder", FaultySince: &since, Faults: 1, First: "a.yaml:1: no", Permissive: true,
		},
		"a large withdrawal of services waits until 2026-07-01T10:00:00Z: 2 services":     {Place: "folder", Waiting: "2 services", WaitingUntil: &since},
		"the store has not answered since 2026-07-01T10:00:00Z; nothing is published yet": {Place: "store", GoneSince: &since},
	}
	for want, state := range states {
		replica := Source{Configuration: func() planestate.State { return state }}.serve(t)
		want = "Configuration:\n  " + replica.Admin + ": " + strings.ReplaceAll(want, "REPLICA", replica.Admin) + "\n\n0 client streams at 1 replica: 0 in sync, 0 behind, 0 refusing\n"
		xdstest.Equal(t, "lines", want, Ask(t.Context(), []Replica{replica}, false, time.Minute).Lines().String())
	}
}

// Relays that do not reach their control plane say so, and since when.
func TestPrintOfARelayAlone(t *testing.T) {
	t.Parallel()
	serve := func(text string) Replica { return Source{Upstream: func() string { return text }}.serve(t) }
	alone, other := serve("the control plane is unreachable since 2026-07-01T10:00:00Z\x1b[31m"), serve("")
	fleet := Ask(t.Context(), []Replica{alone, other}, false, time.Minute)
	want := "Relays without their control plane:\n  " + alone.Admin + ": the control plane is unreachable since 2026-07-01T10:00:00Z\\x1b[31m\n\n0 client streams at 2 replicas: 0 in sync, 0 behind, 0 refusing\n"
	xdstest.Equal(t, "lines", want, fleet.Lines().String())
}

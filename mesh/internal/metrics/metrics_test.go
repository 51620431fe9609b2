package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/metrics"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
	"github.com/dynxds/dynxds/mesh/relay"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a control plane with metrics, and a connection to it.
type rig struct {
	t     *testing.T
	of    *metrics.Plane
	store *controlplane.Store
	conn  *grpc.ClientConn
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, of: metrics.New(), store: controlplane.NewStore()}
	plane := controlplane.NewServer(r.store, controlplane.Options{OnACK: r.of.ACKed, OnNACK: r.of.NACKed, NotFoundErrors: true})
	r.of.AddClients(plane.Overview)
	r.conn = cmdtest.Dial(t, cmdtest.Serve(t, func(s *grpc.Server) { plane.Register(s) }, grpc.StatsHandler(r.of.StatsHandler())))
	t.Cleanup(plane.Close)
	return r
}

// want waits until the metrics have lines.
func (r *rig) want(lines ...string) {
	r.t.Helper()
	cmdtest.Await(r.t, func() string {
		page := scrape(r.of)
		if lacking := cmdtest.LackingLines(page, lines...); len(lacking) > 0 {
			return fmt.Sprintf("the metrics lack %q:\n%s", lacking, page)
		}
		return ""
	})
}

func scrape(p *metrics.Plane) string {
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// Streams, pushes and answers are counted by type, and a client that rejects something is counted until it
// accepts something or leaves.
func TestStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	set := func(m ...proto.Message) {
		_, err := r.store.Update(func(tx *controlplane.Tx) { tx.Set(m...) })
		xdstest.NoError(t, err)
	}
	set(xdsmsg.EDSCluster("c", ""))
	sotw := cmdtest.SotW(t, r.conn)
	request := &discoverypb.DiscoveryRequest{Node: &corepb.Node{Id: "a"}, TypeUrl: xdsmsg.ClusterType, ResourceNames: []string{"c", "missing"}}
	first := sotw.Exchange(request)
	refuse := func(resp *discoverypb.DiscoveryResponse, message string) {
		request.Node, request.ResponseNonce = nil, resp.GetNonce()
		request.ErrorDetail = &statuspb.Status{Message: message}
		if message == "" {
			request.VersionInfo, request.ErrorDetail = resp.GetVersionInfo(), nil
		}
		sotw.Send(request)
	}
	refuse(first, "no")
	// Another subscription after a NACK repeats the nonce: it is no ACK.
	request.ErrorDetail, request.ResourceNames = nil, []string{"c"}
	sotw.Send(request)

	delta := cmdtest.Delta(t, r.conn)
	const invented = "type.googleapis.com/invented.by.Client"
	removed := delta.Exchange(&discoverypb.DeltaDiscoveryRequest{
		Node: &corepb.Node{Id: "b"}, TypeUrl: invented, ResourceNamesSubscribe: []string{"x"},
	})
	delta.Send(&discoverypb.DeltaDiscoveryRequest{TypeUrl: invented, ResponseNonce: removed.GetNonce()})
	r.want(
		`dynxds_controlplane_clients 2`,
		`dynxds_controlplane_streams{kind="sotw"} 1`,
		`dynxds_controlplane_streams{kind="delta"} 1`,
		`dynxds_controlplane_pushes_total{type="Cluster"} 1`,
		fmt.Sprintf(`dynxds_controlplane_push_bytes_total{type="Cluster"} %d`, proto.Size(first)),
		`dynxds_controlplane_pushes_total{type="other"} 1`,
		`dynxds_controlplane_acks_total{type="other"} 1`,
		`dynxds_controlplane_nacks_total{type="Cluster"} 1`,
		`dynxds_controlplane_refusing_streams{type="Cluster"} 1`,
		`dynxds_controlplane_resource_errors_total{type="Cluster"} 1`,
		`dynxds_controlplane_change_to_ack_seconds_count 0`,
	)
	set(xdsmsg.EDSCluster("c", "changed"))
	refuse(sotw.Recv(), "")
	r.want(
		`dynxds_controlplane_acks_total{type="Cluster"} 1`,
		`dynxds_controlplane_refusing_streams{type="Cluster"} 0`,
		`dynxds_controlplane_change_to_ack_seconds_count 1`,
	)
	set(xdsmsg.EDSCluster("c", "changed again"))
	refuse(sotw.Recv(), "no")
	r.want(`dynxds_controlplane_refusing_streams{type="Cluster"} 1`)
	sotw.Cancel()
	r.want(
		`dynxds_controlplane_clients 1`,
		`dynxds_controlplane_streams{kind="sotw"} 0`,
	)
	if page := scrape(r.of); strings.Contains(page, `dynxds_controlplane_refusing_streams{type="Cluster"}`) {
		t.Errorf("without a client of Clusters, some refuse them:\n%s", page)
	}
}

// everyMetric returns metrics that all have a value: those with labels exist once they have one.
func everyMetric(t *testing.T) *metrics.Plane {
	of := metrics.New()
	files := testca.NewFiles(t)
	files.Issue(testca.New(t))
	certificate := certfiles.NewProvider(certfiles.Config{Certificate: files.Cert, Key: files.Key, Refresh: time.Hour})
	t.Cleanup(certificate.Close)
	of.AddSource(func() planestate.State { return planestate.State{} })
	of.AddRelay(func() relay.Stats { return relay.Stats{} })
	of.AddLoads(func() []controlplane.ClusterLoad { return []controlplane.ClusterLoad{{Cluster: "c"}} })
	of.AddClients(func() []controlplane.ClientStatus {
		return []controlplane.ClientStatus{{Types: make([]controlplane.TypeStatus, 1)}}
	})
	of.ACKed(xdsmsg.ClusterType, time.Time{})
	of.NACKed(controlplane.Rejection{TypeURL: xdsmsg.ClusterType})
	of.Limited("streams")
	h := of.StatsHandler()
	ctx := h.TagRPC(t.Context(), &stats.RPCTagInfo{FullMethodName: "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"})
	h.HandleRPC(ctx, &stats.Begin{})
	h.HandleRPC(ctx, &stats.OutPayload{Payload: &discoverypb.DiscoveryResponse{ResourceErrors: []*discoverypb.ResourceError{{}}}})
	return of
}

// Every metric that is documented exists, with its HELP, and the other way round; the linter of
// Prometheus has no complaints.
func TestNames(t *testing.T) {
	t.Parallel()
	of := everyMetric(t)
	families, err := of.Gatherer().Gather()
	xdstest.NoError(t, err)
	page, err := os.ReadFile("../../../docs/reference/metrics.md")
	xdstest.NoError(t, err)
	documented := make(map[string]bool)
	for _, name := range regexp.MustCompile("`(dynxds_(?:controlplane|relay)_[a-z_]+[a-z])`").FindAllStringSubmatch(string(page), -1) {
		documented[name[1]] = true
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "dynxds_") {
			continue
		}
		if !documented[f.GetName()] || f.GetHelp() == "" {
			t.Errorf("%s is not in docs/reference/metrics.md, or has no HELP: %q", f.GetName(), f.GetHelp())
		}
		delete(documented, f.GetName())
	}
	for name := range documented {
		t.Errorf("docs/reference/metrics.md has %s, which does not exist", name)
	}
	problems, err := testutil.GatherAndLint(of.Gatherer())
	xdstest.NoError(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// The lag runs from the first document that is not served until all are.
func TestSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		of := metrics.New()
		var state planestate.State
		of.AddSource(func() planestate.State { return state })
		silent := []controlplane.ClientStatus{{Types: []controlplane.TypeStatus{{Reply: controlplane.ReplyAwaited, SilentSince: time.Now().Add(-5 * time.Second)}}}}
		of.AddClients(func() []controlplane.ClientStatus { return silent })
		const lag, gone = "dynxds_controlplane_store_lag_seconds ", "dynxds_controlplane_store_gone_seconds "
		const faulty, waits = "dynxds_controlplane_documents_faulty_seconds ", "dynxds_controlplane_withdrawal_waits "
		const documents, faults = "dynxds_controlplane_documents ", "dynxds_controlplane_document_faults "
		want := func(step string, lines ...string) {
			t.Helper()
			got := scrape(of)
			if lacking := cmdtest.LackingLines(got, lines...); len(lacking) > 0 {
				t.Errorf("%s: no %q in\n%s", step, lacking, got)
			}
		}
		want("before anything is read", lag+"0", gone+"0", documents+"0", "dynxds_controlplane_late_streams 0")
		of.Seen()
		time.Sleep(2 * time.Second)
		want("before the first is served", lag+"2")
		of.Published(2 * time.Second)
		state.Published = &planestate.Published{Documents: 5}
		want("all is served", lag+"0", documents+"5", faults+"0", "dynxds_controlplane_build_seconds_sum 2")
		of.Seen()
		since := time.Now()
		state.FaultySince, state.Faults = &since, 3
		time.Sleep(time.Second)
		of.Seen()
		want("nothing new is served", lag+"1", documents+"5", faults+"3", faulty+"1")
		of.Published(time.Second)
		state = planestate.State{Published: &planestate.Published{At: time.Unix(1234, 5e8), Documents: 4}}
		want("all is served", lag+"0", documents+"4", faults+"0", faulty+"0", "dynxds_controlplane_published_timestamp_seconds 1234.5")
		goneSince := time.Now()
		state.GoneSince, state.Waiting = &goneSince, "the change withdraws 3 services"
		time.Sleep(time.Second)
		want("the store is gone", lag+"0", faults+"0", gone+"1", waits+"1")
		state = planestate.State{}
		want("all is well", lag+"0", faults+"0", gone+"0", waits+"0")

		// The time of the last change is that of the client that took longest.
		changed := time.Now()
		time.Sleep(time.Second)
		of.ACKed(xdsmsg.ClusterType, changed)
		later := time.Now()
		time.Sleep(3 * time.Second)
		of.ACKed(xdsmsg.ClusterType, changed)
		want("the first change", "dynxds_controlplane_last_change_ack_seconds 4", "dynxds_controlplane_change_to_ack_seconds_sum 5")
		of.ACKed(xdsmsg.ClusterType, later)
		of.ACKed(xdsmsg.ClusterType, changed)
		want("the second change", "dynxds_controlplane_late_streams 1", "dynxds_controlplane_last_change_ack_seconds 3")
	})
}

// A relay's metrics are its Stats.
func TestRelay(t *testing.T) {
	t.Parallel()
	of := metrics.New()
	of.AddRelay(func() relay.Stats {
		return relay.Stats{
			Groups: 1, Upstreams: 2, Subscriptions: 3, Lingering: 4, Refused: 6, Cached: 5, Unreachable: 7,
			UnreachableSince: time.UnixMilli(1500), ServedAway: 8,
		}
	})
	got := scrape(of)
	for name, want := range map[string]string{
		"groups": "1", "upstream_streams": "2", "subscriptions": "3", "lingering_subscriptions": "4", "refused_subscriptions": "6", "cached_resources": "5",
		"upstream_unavailable_groups": "7", "upstream_unavailable_since_timestamp_seconds": "1.5",
		"streams_served_while_unavailable_total": "8",
	} {
		if !strings.Contains(got, "\ndynxds_relay_"+name+" "+want+"\n") {
			t.Errorf("%s is not %s in\n%s", name, want, got)
		}
	}
}

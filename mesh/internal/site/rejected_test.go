package site_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/clients"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
	"github.com/dynxds/dynxds/mesh/internal/serve"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/testutils"
)

func permissive(opts *site.Options) { opts.Permissive = true }

func withPages(opts *site.Options) {
	opts.Serve.Admin, opts.Serve.MetricsAddress = "127.0.0.1:0", "127.0.0.1:0"
}

// pages returns the URLs of --admin and --metrics.
func (r *running) pages() (admin, metrics string) {
	r.t.Helper()
	admin, _, _ = strings.Cut(r.log.After("flag=--admin url=")[0], " ")
	metrics, _, _ = strings.Cut(r.log.After("flag=--metrics url=")[0], " ")
	return admin, metrics
}

// configuration is what "dynxds clients" is told.
func (r *running) configuration() clients.Answer {
	r.t.Helper()
	admin, _ := r.pages()
	var answer clients.Answer
	xdstest.NoError(r.t, json.Unmarshal([]byte(cmdtest.Get(r.t, admin+"clients?nacks")), &answer))
	return answer
}

const (
	// What is valid as a document, and rejected by clients.
	rejectedCluster = "kind: Resource\nresource: {\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: c, type: EDS}\n"
	rejectedFilter  = "kind: Service\nname: filtered\nfilters: [{name: f, typed_config: {\"@type\": type.googleapis.com/xds.type.v3.TypedStruct, type_url: type.googleapis.com/no.Filter}}]\n"
)

// The documents become ones that clients would reject: what was published last stays, for old and new clients, and every
// place where people look says so, until the documents are mended.
func TestWhatClientsRejectIsNotPublished(t *testing.T) {
	t.Parallel()
	for _, authority := range []string{"", "mesh"} {
		m := newMesh(t)
		r := start(t, authority, map[string]string{"services.yaml": m.services(), "owner.yaml": owner}, withPages)
		client := r.dial(plain, "frontend", "v1")
		client.reaches("v1")
		admin, metrics := r.pages()

		r.write("raw.yaml", rejectedCluster+"---\n"+rejectedFilter)
		r.write("third.yaml", "kind: Service\nname: third\n")
		r.reload()
		cluster := r.dir + "/raw.yaml:1: Cluster c: clients reject it: eds_cluster_config"
		r.logged("level=ERROR", "the folder has errors; clients keep the last good state", cluster)
		r.logged("level=ERROR", "the folder has errors; clients keep the last good state", "raw.yaml:4: Listener ", "clients reject it: ", "no.Filter")
		r.reload()
		r.reload() // A look is over when the next one begins.
		if n := r.log.Count("Cluster c: clients reject it"); n != 1 {
			t.Errorf("the log says %d times what clients reject, want once", n)
		}
		faults := 2
		if authority != "" {
			faults++ // the Listener has two names
		}
		client.reaches("v1")
		r.dial(plain, "batch", "v1").reaches("v1")
		health := cmdtest.Get(t, admin+"healthz")
		if lacking := lackingTexts(health, "SERVING\n", fmt.Sprintf("the folder has %d errors since 20", faults), "; clients keep what was published last: "+cluster); lacking != nil {
			t.Errorf("/healthz lacks %q: %s", lacking, health)
		}
		if open := cmdtest.Get(t, metrics+"healthz"); !strings.Contains(open, "errors since") || strings.Contains(open, "raw.yaml") {
			t.Errorf("/healthz of --metrics is %q, want the faults without names of files", open)
		}
		if lacking := cmdtest.LackingLines(cmdtest.Get(t, metrics+"metrics"), fmt.Sprint("dynxds_controlplane_document_faults ", faults), "dynxds_controlplane_documents 3"); lacking != nil {
			t.Errorf("the metrics lack %q", lacking)
		}
		state := r.configuration().Configuration
		if state == nil || state.Valid() || state.Faults != faults || !strings.HasPrefix(state.First, cluster) || state.Permissive ||
			state.Published == nil || state.Published.Version != 1 || state.Published.Services != 2 {
			t.Errorf("the state is %+v, want %d faults and the first version in use", state, faults)
		}

		r.remove("raw.yaml")
		cmdtest.Await(t, func() string {
			r.reload()
			if state = r.configuration().Configuration; state.Valid() {
				return ""
			}
			return "the state is still faulty"
		})
		r.logged("the folder is valid again")
		if p := state.Published; p == nil || p.Version != 2 || p.Services != 3 || len(p.What) != 1 || p.What[0] != "third" || p.Changed == 0 || p.Removed != 0 || p.Documents != 4 {
			t.Errorf("the last update is %+v, want that of the service third", p)
		}
		if health := cmdtest.Get(t, admin+"healthz"); health != "SERVING\n" {
			t.Errorf("/healthz is %q of a valid folder", health)
		}
		client.reaches("v1")
	}
}

func lackingTexts(text string, want ...string) (lacking []string) {
	for _, part := range want {
		if !strings.Contains(text, part) {
			lacking = append(lacking, part)
		}
	}
	return lacking
}

// A folder that clients would reject when the server starts: it serves nothing, and says why, as it does with a folder that
// cannot be read.
func TestAStartWithWhatClientsReject(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	files := map[string]string{"services.yaml": m.services(), "raw.yaml": rejectedCluster}
	dir := t.TempDir()
	for name, text := range files {
		cmdtest.Write(t, dir, name, text)
	}
	opts := site.Options{Dir: dir, Serve: serve.Options{Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)}}
	err := site.Run(testutils.Context(t), opts)
	cmdtest.ErrorHas(t, "Run", err, dir+"/raw.yaml:1: Cluster c: clients reject it: eds_cluster_config")

	files["raw.yaml"] = ""
	start(t, "", files).dial(plain, "frontend", "v1").reaches("v1")
}

// With --permissive all is published, and every place says what clients reject, also after updates of other parts.
func TestPermissive(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	r := start(t, "", map[string]string{"services.yaml": m.services(), "raw.yaml": rejectedCluster}, permissive, withPages)
	r.logged("level=ERROR", "msg=report", "raw.yaml:1", "Cluster c: clients reject it: eds_cluster_config")
	want := func(when string, version uint64, faults int) {
		t.Helper()
		state := r.configuration().Configuration
		if state.Published.Version != version || state.Faults != faults || state.Valid() != (faults == 0) || !state.Permissive ||
			faults > 0 && !strings.Contains(state.First, "raw.yaml:1: Cluster c: ") {
			t.Errorf("%s the state is %+v, want version %d with %d faults", when, state, version, faults)
		}
	}
	want("at the start", 1, 1)
	r.write("other.yaml", "kind: Service\nname: other\n")
	r.reload()
	r.logged("msg=published", "version=2")
	r.reload() // A look is over when the next one begins.
	r.reload()
	if n := r.log.Count("Cluster c: clients reject it"); n != 1 {
		t.Errorf("the log says %d times what clients reject, want once", n)
	}
	admin, _ := r.pages()
	// An answer of the pages is as old as a second.
	cmdtest.Await(t, func() string {
		if state := r.configuration().Configuration; state.Published.Version == 2 {
			return ""
		}
		return "no answer of version 2"
	})
	want("after another update", 2, 1)
	if health := cmdtest.Get(t, admin+"healthz"); !strings.Contains(health, "SERVING\nthe folder has 1 error since ") || !strings.Contains(health, "; published nevertheless (--permissive): ") {
		t.Errorf("/healthz is %q", health)
	}
	r.dial(plain, "frontend", "v1").reaches("v1")
	r.remove("raw.yaml")
	cmdtest.Await(t, func() string {
		r.reload()
		if state := r.configuration().Configuration; state.Published.Version == 3 {
			return ""
		}
		return "no answer of version 3"
	})
	want("without the resource", 3, 0)
}

// A change that withdraws much is no fault: the state says what waits.
func TestTheStateOfAWithdrawal(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	r := start(t, "", map[string]string{"services.yaml": m.services()}, withPages, func(o *site.Options) { o.WithdrawalDelay = 1e15 })
	r.write("services.yaml", "kind: Service\nname: lonely\n")
	cmdtest.Await(t, func() string {
		r.reload()
		state := r.configuration().Configuration
		if state.Waiting == "" {
			return "the withdrawal does not wait"
		}
		if !state.Valid() || state.Published.Services != 3 || !strings.Contains(state.Waiting, "withdraws 2 services (backend, shadow)") {
			t.Errorf("the state is %+v", state)
		}
		return ""
	})
}

// A policy that names a service that does not exist is published, as the service may come later. The state has the error,
// and the warnings about what is published, also after an update of other parts.
func TestTheStateHasReports(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	lost := strings.NewReplacer("VERSION", "v2", "kind: MeshServiceSubset, name: backend", "kind: MeshServiceSubset, name: lost").Replace(consumer)
	server := "kind: Resource\nresource: {\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener, name: server, address: {socket_address: {address: 10.0.0.1, port_value: 80}}}\n"
	r := start(t, "", map[string]string{"services.yaml": m.services(), "consumer.yaml": lost, "server.yaml": server}, withPages)
	check := func(version uint64) {
		t.Helper()
		var state *planestate.State
		cmdtest.Await(t, func() string { // an answer of the pages is as old as a second
			if state = r.configuration().Configuration; state.Published.Version == version {
				return ""
			}
			return fmt.Sprint("no answer of version ", version)
		})
		p := state.Published
		if !state.Valid() || p.Errors == 0 || p.Warnings != 1 || len(p.Reports) != p.Errors+1 ||
			!strings.Contains(p.Reports[0], "error: ") || !strings.Contains(p.Reports[0], "lost") ||
			!strings.Contains(p.Reports[p.Errors], "server.yaml:1: warning: Listener server: it has no api_listener") {
			t.Errorf("version %d: the state is %+v, %+v, want an error that names the service, and a warning about the Listener", version, state, p)
		}
	}
	check(1)
	r.write("other.yaml", "kind: Service\nname: other\n")
	r.reload()
	check(2)
	admin, _ := r.pages()
	if health := cmdtest.Get(t, admin+"healthz"); !strings.Contains(health, "in what is published; some clients get errors") {
		t.Errorf("/healthz is %q", health)
	}
}

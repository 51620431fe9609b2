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

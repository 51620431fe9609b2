package relay_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/relay"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// A relay that starts while the control plane is away serves old and new clients what the one
// before it had, under the same versions, and what the control plane has when that is back.
func TestRestartWithoutTheControlPlane(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		dir := t.TempDir()
		change := func(o *relay.Options) {
			o.Bootstrap.ResourceCache.Directory, o.Bootstrap.ResourceCache.MaxAge = dir, time.Hour
			o.AwayDelay = -1
		}
		features = append(features, "dynamic_parameter_constraints")
		r := newRig(t, change, features...)
		r.up.Set(t, xdsmsg.EDSCluster("c", ""), xdsmsg.EDSCluster(member("m"), ""))
		r.up.SetVariant(t, map[string]string{"env": "prod"}, xdsmsg.EDSCluster("v", "prod"))
		r.up.SetVariant(t, map[string]string{"env": "test"}, xdsmsg.EDSCluster("v", "test"))
		globs := len(features) == 2 // with delta upstream
		// ask subscribes to everything, and returns what comes. away says that the control plane
		// is: then the error for a name that the relay does not know shows that the others were
		// looked at.
		ask := func(addr string, away bool, versions map[string]string) map[string]*discoverypb.Resource {
			d, want := r.deltaTo(addr), 1-len(versions)
			names := []string{"c"}
			if globs {
				names = append(names, member("*"))
				want++
			}
			if away {
				names = append(names, "unknown")
			}
			d.send(&discoverypb.DeltaDiscoveryRequest{
				Node: node("a"), TypeUrl: clusterType, ResourceNamesSubscribe: names, InitialResourceVersions: versions,
			})
			got := make(map[string]*discoverypb.Resource)
			for told := !away; !told || len(got) < want; {
				resp := d.receive()
				for _, res := range resp.GetResources() {
					got[res.GetName()] = res
				}
				for _, failed := range resp.GetResourceErrors() {
					told = true
					if code := codes.Code(failed.GetErrorDetail().GetCode()); failed.GetResourceName().GetName() != "unknown" || code != codes.Unavailable {
						t.Errorf("got the error %v, want UNAVAILABLE for the one that is unknown", failed)
					}
				}
			}
			d = r.deltaTo(addr)
			subscribeTo(d, node("a"), clusterType, []string{"env=test"}, "v")
			got["v"] = wantOnly(d, "v")
			return got
		}
		had := ask(r.addr, false, nil)
		r.Close()
		r.up.Stop()

		again, addr := r.start(change, features...)
		for name, res := range ask(addr, true, nil) {
			if !proto.Equal(res, had[name]) {
				t.Errorf("a new client got %v, want %v", res, had[name])
			}
		}
		for name, res := range ask(addr, true, map[string]string{"c": had["c"].GetVersion()}) {
			if name == "c" {
				t.Errorf("an old client is sent %v again", res)
			}
		}
		d := r.deltaTo(addr)
		subscribe(d, node("b"), clusterType, "c")
		wantOnly(d, "c")
		if s := again.Stats(); s.Unreachable != 1 {
			t.Errorf("the relay has %+v", s)
		}
		r.up.Set(t, xdsmsg.EDSCluster("c", "changed"))
		xdstest.NoError(t, r.up.Restart())
		wantOnly(d, "c")
	})
}

// What is for a single client is not kept.
func TestNothingIsKeptForSingleClients(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRig(t, func(o *relay.Options) {
		o.Bootstrap.ResourceCache.Directory, o.Bootstrap.ResourceCache.MaxAge = dir, time.Hour
	}, "delta", variants)
	r.rewrap(func(m *discoverypb.Resource) { m.CacheControl = &discoverypb.Resource_CacheControl{DoNotCache: true} })
	r.up.Set(t, xdsmsg.EDSCluster("secret", ""))
	wantOnly(r.client(node("a"), "secret"), "secret")
	r.Close()
	files, err := os.ReadDir(dir)
	xdstest.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		xdstest.NoError(t, err)
		if bytes.Contains(text, []byte("secret")) {
			t.Errorf("the file %s has the resource", file.Name())
		}
	}
}

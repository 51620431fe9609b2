package site_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/folder/foldertest"
	"github.com/dynxds/dynxds/mesh/internal/site"
	"github.com/dynxds/dynxds/testutils"
)

// A policy sends requests to a missing service: the RPCs of its clients fail with the names of
// the policy and the service, until the service is added.
func TestAMissingServiceReachesRPCs(t *testing.T) {
	t.Parallel()
	eachKindOfClient(t, func(t *testing.T, kind clientKind) {
		m := newMesh(t)
		lost := strings.NewReplacer("VERSION", "v2", "kind: MeshServiceSubset, name: backend", "kind: MeshServiceSubset, name: lost").Replace(consumer)
		r := start(t, kind.authority, map[string]string{"services.yaml": m.services(), "consumer.yaml": lost})
		r.logged("level=ERROR", "consumer.yaml", "lost")
		r.dial(kind, "batch", "v2").reaches("v1")
		frontend := r.dial(kind, "frontend", "v2")
		_, _, err := frontend.call()
		unavailable(t, err, "does not exist", "policy consumer", `"lost"`)
		r.write("lost.yaml", fmt.Sprintf("kind: Service\nname: lost\nendpoints: [{address: %q, tags: {version: v2}}]\n", m.shadow.Addr()))
		r.reload()
		r.logged("published", "services=3")
		for ctx := testutils.Context(t); ; {
			if backend, _, err := frontend.call(); backend == "shadow" {
				return
			} else if ctx.Err() != nil {
				t.Fatalf("frontend's RPCs reach %q, %v, want shadow", backend, err)
			}
		}
	})
}

// A policy sends half of the requests to a missing service, and mirrors all to another: half of the RPCs
// fail, with the reason. (Kuma: UnresolvedBackendRefsWeight of its MeshHTTPRoute.)
func TestAMissingBackendFailsOnlyItsShare(t *testing.T) {
	t.Parallel()
	eachKindOfClient(t, func(t *testing.T, kind clientKind) {
		m := newMesh(t)
		policy := strings.NewReplacer("name: shadow", "name: nobody", "backendRefs: [", "backendRefs: [{kind: MeshService, name: lost, weight: 1}, ").Replace(owner)
		r := start(t, kind.authority, map[string]string{"services.yaml": m.services(), "owner.yaml": policy})
		r.logged("level=WARN", "owner.yaml", "nobody", "requests are not mirrored")
		frontend := r.dial(kind, "frontend", "v1")
		reached := map[string]int{}
		for range 200 {
			backend, _, err := frontend.call()
			if reached[backend]++; err != nil {
				unavailable(t, err, "policy owner", `"lost"`)
			}
		}
		xdstest.Shares(t, "RPCs, without a backend those that fail", map[string]float64{"v1": 1, "": 1}, reached)
	})
}

// A policy is for a missing service: RPCs to it fail with the name of the policy, other RPCs
// succeed.
func TestAPolicyForAMissingServiceReachesRPCs(t *testing.T) {
	t.Parallel()
	eachKindOfClient(t, func(t *testing.T, kind clientKind) {
		m := newMesh(t)
		r := start(t, kind.authority, map[string]string{
			"services.yaml": m.services(), "owner.yaml": strings.Replace(owner, "kind: MeshService, name: backend", "kind: MeshService, name: lost", 1),
		})
		r.dial(kind, "frontend", "v1").reaches("v1")
		lost := r.dialAs("lost", kind, map[string]any{"service": "frontend"})
		_, _, err := lost.call()
		// NOT_FOUND in place of the resource (xRFC TP3).
		unavailable(t, err, "does not exist", "policy owner", `"lost"`)
	})
}

func TestTheLogNamesNodes(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	r := start(t, "", map[string]string{
		"services.yaml": m.services(),
		// A Listener that clients reject.
		"bad.yaml": `
kind: Resource
resource:
  "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: broken
  apiListener: {}
`,
	}, permissive)
	conn := r.connect("xds:///broken", plain, map[string]any{"service": "frontend", "version": "v9"})
	conn.Connect()
	r.logged("a client rejects a response", "node=frontend-v9")
	conn.Close()
	r.logged("stream ended", "node=frontend-v9")
}

// Files that a ConfigMap or git-sync replaces together, with a look and RPCs after each step: one update for each revision, no
// errors, and no RPC fails, though the service moves from one file to another.
func TestSwappedFilesArePublishedTogether(t *testing.T) {
	t.Parallel()
	for name, swap := range map[string]func(testing.TB, string, map[string]string, func()){
		"a ConfigMap": foldertest.WriteConfigMap, "git-sync": foldertest.Sync,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			policy := strings.NewReplacer("VERSION", "v1").Replace(consumer)
			r := start(t, "", nil, func(o *site.Options) {
				o.Dir = filepath.Join(o.Dir, "mesh")
				swap(t, o.Dir, map[string]string{"a.yaml": m.services(), "policy.yaml": policy}, func() {})
			})
			client := r.dial(plain, "frontend", "v1")
			client.reaches("v1")
			step := func() {
				r.reload()
				client.reaches("v1")
			}
			for i, revision := range []map[string]string{
				{"a.yaml": named("other"), "b.yaml": m.services(), "policy.yaml": policy},
				{"a.yaml": m.services(), "policy.yaml": policy + "---\n" + named("other")},
				{"policy.yaml": policy, "z.yaml": m.services() + "---\n" + named("last")},
			} {
				swap(t, filepath.Join(r.dir, "mesh"), revision, step)
				step()
				r.logged("msg=published", fmt.Sprintf("version=%d", i+2), fmt.Sprintf("files=%d", len(revision)))
			}
			r.dial(plain, "batch", "v1").reaches("v1")
			if n := r.log.Count("msg=published"); n != 4 || strings.Contains(r.log.String(), "level=ERROR") {
				t.Errorf("the log has %d updates, want 4, and no errors:\n%s", n, r.log)
			}
		})
	}
}

// A target that is no service: RPCs fail with what it may have been meant to be.
func TestAWrongTarget(t *testing.T) {
	t.Parallel()
	eachKindOfClient(t, func(t *testing.T, kind clientKind) {
		m := newMesh(t)
		r := start(t, kind.authority, map[string]string{"services.yaml": m.services()})
		_, _, err := r.dialAs("back", kind, map[string]any{"service": "frontend"}).call()
		unavailable(t, err, "does not exist")
		unavailable(t, err, `there is no service "back"; did you mean "backend"?`)
	})
}

func named(name string) string {
	return fmt.Sprintf("kind: Service\nname: %s\nendpoints: [{address: '10.0.0.1:80'}]\n", name)
}

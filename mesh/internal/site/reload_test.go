package site_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// A policy sends requests to a missing service: the RPCs of its clients fail with the names of
// the policy and the service, until the service is added.
func TestAMissingServiceReachesRPCs(t *testing.T) {
	t.Parallel()
	eachKindOfClient(t, func(t *testing.T, kind clientKind) {
		m := newMesh(t)
		lost := strings.ReplaceAll(policyOf(t, "consumer", "v2"), "kind: MeshServiceSubset, name: backend", "kind: MeshServiceSubset, name: lost")
		r := start(t, kind.authority, map[string]string{"services.yaml": m.services(), "consumer.yaml": lost})
		r.logged("level=ERROR", "consumer.yaml", "lost")
		r.dial(kind, "batch", "v2").reaches("v1")
		frontend := r.dial(kind, "frontend", "v2")
		_, _, err := frontend.call()
		unavailable(t, err, "does not exist", "policy consumer", `"lost"`)
		r.write("lost.yaml", fmt.Sprintf("kind: Service\nname: lost\nendpoints: [{address: %q, tags: {version: v2}}]\n", m.shadow.Addr()))
		r.reload()
		r.logged("published", "services=3")
		await := func(want string) {
			t.Helper()
			for ctx := testutils.Context(t); ; {
				if backend, _, err := frontend.call(); backend == want {
					return
				} else if ctx.Err() != nil {
					t.Fatalf("frontend's RPCs reach %q, %v, want %s", backend, err, want)
				}
			}
		}
		await("shadow")
		// A file that is gone counts a moment later, without another signal.
		xdstest.NoError(t, os.Remove(filepath.Join(r.dir, "consumer.yaml")))
		r.reload()
		await("v1")
	})
}

package site_test

import (
	"fmt"
	"net"
	"testing"

	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

// Clients of dynxds get a host name and a redirect when the folder adds them, and only
// redirected RPCs fail.
func TestOurClientsGetWhatOnlyTheyTake(t *testing.T) {
	t.Parallel()
	eachKindOfClient(t, func(t *testing.T, kind clientKind) {
		v1, v2 := testutils.StartBackend(t, "v1"), testutils.StartBackend(t, "v2")
		service := func(address string) string {
			return fmt.Sprintf("kind: Service\nname: backend\nendpoints: [{address: %q}]\n", address)
		}
		r := start(t, kind.authority, map[string]string{"mesh.yaml": service(v1.Addr())})
		c := r.dial(kind, "frontend", "v1")
		c.reaches("v1")

		_, port, err := net.SplitHostPort(v2.Addr())
		xdstest.NoError(t, err)
		r.write("mesh.yaml", service("localhost:"+port)+`---
kind: MeshHTTPRoute
name: redirect
spec: {to: [{targetRef: {kind: MeshService, name: backend}, rules: [{matches: [{path: {exact: `+emptyCall+`}}], filters: [{requestRedirect: {hostname: elsewhere}}]}]}]}
`)
		r.reload()
		c.reaches("v2")
		ctx := testutils.Context(t)
		for ctx.Err() == nil {
			if _, err = c.EmptyCall(ctx, &testpb.Empty{}); err != nil {
				break
			}
		}
		cmdtest.ErrorHas(t, "a redirected RPC", err, "elsewhere")
	})
}

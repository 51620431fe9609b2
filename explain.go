package dynxds

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/explain"
)

// Explain says what becomes of RPCs of an xDS channel of the process, and why, without sending one.
// target is the channel's target as it was dialled, "xds:///backend", method the full method,
// "/package.Service/Method", and md the metadata that the RPC would have; it may be nil.
//
//	e, err := dynxds.Explain(ctx, "xds:///backend", "/pkg.Service/Method", metadata.Pairs("x-user", "7"))
//	…
//	fmt.Print(e.Text())
//
// It reads what the channel's xDS client holds and the state of the channel's connections; ctx
// bounds the wait for the latter. Nothing changes. It takes some milliseconds, and is for
// debugging. RPCs that would fail are explained too. It is an error if no channel has the
// target, or if target, method or md are malformed.
func Explain(ctx context.Context, target, method string, md metadata.MD) (*Explanation, error) {
	return explain.InProcess(ctx, explain.Request{Target: target, Method: method, Headers: md})
}

// Explanation is the answer of Explain: a copy, which does not change. Its methods are Text, for a
// terminal, and those of encoding/json; docs/tasks/explain.md describes the result of both.
//
//   - Outcome (string) is the answer on one line. Code (string) is the status that every such RPC
//     fails with, such as "UNAVAILABLE", or empty. Notes ([]string) are what else there is to know.
//   - Request and Client say what was asked, and of which xDS client and servers.
//   - Listener and RouteConfig are these resources: their versions, errors and ignored fields.
//   - VirtualHosts are those that were considered, and Routes those that were tried. Each says
//     why it was not chosen. A route has its share of the RPCs in percent, and its Action: filters,
//     timeout, retry, hash, rewrites, header edits, mirrors, and the odds of each cluster.
//   - Clusters are those that the RPCs may go to, with their settings, priorities, localities and
//     endpoints.
type Explanation = explain.Explanation

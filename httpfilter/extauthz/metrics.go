package extauthz

import (
	"context"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/filterchain"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// The metrics count RPCs by what the filter does with them (gRFC A92, "Client-Side Metrics").
var (
	allowed  = metric("allowed_rpcs", "Number of RPCs that were allowed by the ext_authz server.")
	denied   = metric("denied_rpcs", "Number of RPCs that were denied by the ext_authz server.")
	disabled = metric("filter_disabled_rpcs", "Number of RPCs for which the filter was disabled.")
	failed   = metric("failed_rpcs", "Number of RPCs for which the ext_authz call-out failed.")
)

func metric(name, description string) *grpcbridge.Metric {
	return grpcbridge.NewMetric(estats.MetricDescriptor{
		Type: estats.MetricTypeIntCount, Name: "grpc.client_ext_authz." + name, Unit: "{RPC}", Description: description,
		Labels: []string{"grpc.target"}, OptionalLabels: []string{"grpc.lb.backend_service"},
	})
}

// decided counts an RPC, and tells its trace what was decided and why.
func (in instance) decided(ctx context.Context, rpc *httpfilter.RPC, m *grpcbridge.Metric, decision string, why error) {
	m.Record(in.Metrics, 1, in.Target, rpc.Cluster)
	filterchain.Decided(ctx, in.Name, decision, why)
}

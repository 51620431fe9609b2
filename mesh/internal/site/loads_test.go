package site

import (
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadpb "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/testutils"
)

// Clusters that a client makes up are not remembered: 100,000 of them would leave no room for others.
func TestLoadsOfClustersThatThereAre(t *testing.T) {
	t.Parallel()
	const text = "kind: Service\nname: backend\nloadReporting: true\n---\n" +
		"kind: Resource\ndynamicParameters: {env: prod}\nresource: {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: legacy, type: EDS, eds_cluster_config: {eds_config: {ads: {}}}}\n"
	content, err := new(folder.Parser).Parse(map[string]string{"a.yaml": text})
	xdstest.NoError(t, err)
	p := quietPlane(Options{})
	_, err = p.publisher.Publish(t.Context(), content)
	xdstest.NoError(t, err)
	t.Cleanup(p.loads.Close)
	stream, err := loadpb.NewLoadReportingServiceClient(cmdtest.Dial(t, cmdtest.Serve(t, func(s *grpc.Server) { p.loads.Register(s) }))).StreamLoadStats(testutils.Context(t))
	xdstest.NoError(t, err)
	report := func(cluster string) *endpointpb.ClusterStats {
		return &endpointpb.ClusterStats{ClusterName: cluster, TotalDroppedRequests: 1}
	}
	xdstest.NoError(t, stream.Send(&loadpb.LoadStatsRequest{
		Node: &corepb.Node{Id: "n"}, ClusterStats: []*endpointpb.ClusterStats{report("made-up"), report("backend"), report("legacy")},
	}))
	loads, err := p.loads.Await(testutils.Context(t), func(l []controlplane.ClusterLoad) bool { return len(l) > 0 })
	xdstest.NoError(t, err)
	if len(loads) != 2 || loads[0].Cluster != "backend" || loads[1].Cluster != "legacy" || len(p.knownLoads()) != 2 {
		t.Errorf("the loads are %+v, those in metrics %+v; want those of backend and legacy", loads, p.knownLoads())
	}
}

package e2e_test

import (
	"strings"
	"testing"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// A program asks for the clusters of the shards that it was assigned (xRFC TP2,
// "Sharding Clusters").
func ExampleSetConstraints() {
	shards, err := dynparam.New(dynparam.Require("shards", dynparam.InRanges(
		dynparam.Range{Min: 4, Max: 6}, dynparam.Range{Min: 11, Max: 15}, dynparam.Range{Min: 46, Max: 90})))
	if err != nil {
		panic(err) // a range the wrong way round, for example
	}
	clusters, err := dynparam.NewByType(map[string]dynparam.Constraints{"envoy.config.cluster.v3.Cluster": shards})
	if err != nil {
		panic(err)
	}
	if err := dynxds.SetConstraints(clusters); err != nil {
		panic(err)
	}
	// When the shards are no longer this program's.
	if err := dynxds.SetConstraints(dynparam.ByType{}); err != nil {
		panic(err)
	}
	// Output:
}

func TestSetConstraintsForABootstrap(t *testing.T) {
	t.Parallel()
	var none dynparam.ByType
	err := dynxds.SetConstraints(none, dynxds.WithBootstrap([]byte(`{"xds_servers": []}`)))
	if err == nil || !strings.Contains(err.Error(), "xds_servers") {
		t.Errorf("error %v, want one that names xds_servers", err)
	}
	err = dynxds.SetConstraints(none, dynxds.WithBootstrap(
		[]byte(`{"xds_servers": [{"server_uri": "xds.example.com:443", "channel_creds": [{"type": "insecure"}]}]}`)))
	if err != nil {
		t.Error(err)
	}
}

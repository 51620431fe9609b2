// Package rls makes routes follow a RouteLookupService: a server says for each RPC, by its method and headers, which
// cluster it goes to. Import it for its effect:
//
//	import _ "github.com/dynxds/dynxds/balancer/rls"
//
// It registers the cluster specifier plugin grpc.lookup.v1.RouteLookupClusterSpecifier. The look-ups, their cache and the
// metrics are those of gRPC's policy rls_experimental; the clusters are those of the channel, with all that their Clusters say.
package rls

import (
	"encoding/json"
	"errors"
	"fmt"

	grpcbalancer "google.golang.org/grpc/balancer"
	grpcrls "google.golang.org/grpc/balancer/rls"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

func init() {
	xdsresource.RegisterPlugin("grpc.lookup.v1.RouteLookupClusterSpecifier", parse)
}

// config is that of rls_experimental.
type config struct {
	RouteLookupConfig json.RawMessage                  `json:"routeLookupConfig"`
	ChildPolicy       []map[string]map[string]struct{} `json:"childPolicy"`
	Target            string                           `json:"childPolicyConfigTargetFieldName"`
}

// parse implements xdsresource.Plugin.
func parse(from *anypb.Any) (policy, text string, err error) {
	// gRPC has the Go types of the messages in an internal package, but registers them.
	message, err := from.UnmarshalNew()
	if err != nil {
		return "", "", fmt.Errorf("cannot be read as %s: %v", from.GetTypeUrl(), err)
	}
	whole, _ := protojson.Marshal(message) // It was read, and has no Any.
	c := config{ChildPolicy: []map[string]map[string]struct{}{{balancer.TargetPolicy: {}}}, Target: "cluster"}
	_ = json.Unmarshal(whole, &c) // protojson wrote it
	if c.RouteLookupConfig == nil {
		return "", "", errors.New("route_lookup_config must be set")
	}
	// protojson varies its spaces, and marshalling removes them.
	out, _ := json.Marshal(c)
	if _, err := grpcbalancer.Get(grpcrls.Name).(grpcbalancer.ConfigParser).ParseConfig(out); err != nil {
		return "", "", err
	}
	return grpcrls.Name, string(out), nil
}

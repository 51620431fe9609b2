package csds

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dynxds/dynxds/internal/livestate"
)

// StateName is the name of the entry of a ClientConfig that is no resource but the live state.
const StateName = "dynxds.state"

// bypassing returns a ClientConfig without a node for the channels that have no client, for want of a bootstrap, and are resolved
// by DNS. It is nil if there are none.
func bypassing(ctx context.Context) *statusv3.ClientConfig {
	source := livestate.OfNoClient()
	if len(source.Channels) == 0 {
		return nil
	}
	var targets []string
	for _, c := range source.Channels {
		targets = append(targets, c.Target)
	}
	slices.Sort(targets)
	return &statusv3.ClientConfig{
		ClientScope:       strings.Join(slices.Compact(targets), ", "),
		GenericXdsConfigs: []*statusv3.ClientConfig_GenericXdsConfig{stateConfig(ctx, source)},
	}
}

// stateConfig returns the entry with the live state of a client and its channels: a Struct, which every tool
// can print, as it is of a type that all of them know.
func stateConfig(ctx context.Context, source *livestate.Source) *statusv3.ClientConfig_GenericXdsConfig {
	state := livestate.Take(ctx, source)
	state.Bound()
	config := &statusv3.ClientConfig_GenericXdsConfig{
		Name: StateName, VersionInfo: livestate.Format, LastUpdated: timestamppb.New(state.Time), ClientStatus: adminv3.ClientResourceStatus_ACKED,
	}
	values := new(structpb.Struct)
	text, err := json.Marshal(state)
	if err == nil {
		err = values.UnmarshalJSON(text)
	}
	if err == nil {
		config.XdsConfig, err = anypb.New(values)
	}
	config.TypeUrl = config.GetXdsConfig().GetTypeUrl()
	if err != nil { // Not reached: a State has nothing but texts, numbers and times.
		config.ErrorState = &adminv3.UpdateFailureState{Details: err.Error()}
	}
	return config
}

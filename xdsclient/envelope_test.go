package xdsclient

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// enveloped is a cluster with its envelope.
type enveloped struct {
	Envelope
	resource *anypb.Any
	time     time.Time
}

// envelopedClusters is the type of clusters for a program that passes them on.
func envelopedClusters() *ResourceType {
	return &ResourceType{
		TypeURL: newTestTypes().clusters.TypeURL, Name: "Cluster", FullStateInSotW: true,
		Decode: func(a *anypb.Any, opts DecodeOptions) (any, error) {
			m := new(clusterv3.Cluster)
			if err := a.UnmarshalTo(m); err != nil {
				return nil, err
			}
			return &enveloped{opts.Envelope, a, time.Now()}, nil
		},
		Renew: func(value any, ttl time.Duration) any {
			renewed := *value.(*enveloped)
			renewed.TTL, renewed.time = ttl, time.Now()
			return &renewed
		},
	}
}

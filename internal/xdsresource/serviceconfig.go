package xdsresource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/matching"
)

// HedgingOf returns the routes for the methods of a gRPC service config that gRPC accepts, some of
// which have a hedgingPolicy (gRFC A6): gRPC-Go does not know that field. It returns nil if none has
// one. All routes go to a cluster without a name. The error names the field that is wrong.
func HedgingOf(serviceConfig string) (*VirtualHost, error) {
	if !strings.Contains(serviceConfig, "hedgingPolicy") {
		return nil, nil
	}
	var config struct {
		MethodConfig    []methodConfig
		RetryThrottling *RetryThrottling
	}
	if err := json.Unmarshal([]byte(serviceConfig), &config); err != nil {
		return nil, err
	}
	// The most specific name of a method is that of its method config.
	var methods, services, all []*Route
	hedged := false
	for i, m := range config.MethodConfig {
		retry, err := m.hedging()
		if err != nil {
			return nil, fmt.Errorf("methodConfig[%d].%w", i, err)
		}
		hedged = hedged || retry != nil
		for _, name := range m.Name {
			route := &Route{Settings: &Settings{Action: &Forward{Clusters: []WeightedCluster{{Weight: 1}}}, Retry: retry}}
			if retry != nil && m.Timeout != nil {
				// For all attempts together; gRPC applies it to each.
				route.MaxStreamDuration = (*time.Duration)(m.Timeout)
			}
			switch {
			case name.Method != "":
				route.Match = matching.Route{PathKind: matching.PathExact, Path: "/" + name.Service + "/" + name.Method}
				methods = append(methods, route)
			case name.Service != "":
				route.Match.Path = "/" + name.Service + "/"
				services = append(services, route)
			default:
				all = append(all, route)
			}
		}
	}
	if !hedged {
		return nil, nil
	}
	all = append(all, &Route{Settings: &Settings{Action: &Forward{Clusters: []WeightedCluster{{Weight: 1}}}}})
	vh := &VirtualHost{Name: "service config", Routes: append(append(methods, services...), all...)}
	if t := config.RetryThrottling; t != nil {
		vh.HedgeThrottling = &RetryThrottling{MaxTokens: t.MaxTokens, TokenRatio: math.Floor(t.TokenRatio*1000) / 1000}
	}
	vh.compiled = newRouteTable(vh, clustersOf(vh.Routes))
	return vh, nil
}

// methodConfig is an entry of methodConfig.
type methodConfig struct {
	Name          []struct{ Service, Method string }
	Timeout       *jsonDuration
	RetryPolicy   json.RawMessage
	HedgingPolicy *struct {
		MaxAttempts         *int
		HedgingDelay        jsonDuration
		NonFatalStatusCodes []jsonCode
	}
}

// hedging returns the policy for the methods, or nil (gRFC A6, "Validation of hedgingPolicy").
func (m *methodConfig) hedging() (*RetryPolicy, error) {
	h := m.HedgingPolicy
	switch {
	case h == nil:
		return nil, nil
	case len(m.RetryPolicy) > 0 && string(m.RetryPolicy) != "null":
		return nil, errors.New("hedgingPolicy: there is a retryPolicy as well; only one of them may be set")
	case h.MaxAttempts == nil || *h.MaxAttempts < 2:
		return nil, errors.New("hedgingPolicy.maxAttempts: must be an integer above 1")
	case h.HedgingDelay < 0:
		return nil, errors.New("hedgingPolicy.hedgingDelay: must not be negative")
	}
	p := &RetryPolicy{MaxAttempts: min(*h.MaxAttempts, maxRetryAttempts), Hedging: &Hedging{Delay: time.Duration(h.HedgingDelay)}}
	for _, c := range h.NonFatalStatusCodes {
		p.Codes |= NewCodeSet(codes.Code(c))
	}
	return p, nil
}

// jsonDuration is a google.protobuf.Duration.
type jsonDuration time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (d *jsonDuration) UnmarshalJSON(text []byte) error {
	var pb durationpb.Duration
	if err := protojson.Unmarshal(text, &pb); err != nil {
		return fmt.Errorf("%s is not a duration such as \"0.5s\"", text)
	}
	*d = jsonDuration(pb.AsDuration())
	return nil
}

// jsonCode is a status code, as a number or as a name in any case.
type jsonCode codes.Code

// UnmarshalJSON implements json.Unmarshaler.
func (c *jsonCode) UnmarshalJSON(text []byte) error {
	var code codes.Code
	err := code.UnmarshalJSON(bytes.ToUpper(text))
	if err != nil || code > codes.Unauthenticated || string(text) == "null" {
		return fmt.Errorf("%s is not a status code", text)
	}
	*c = jsonCode(code)
	return nil
}

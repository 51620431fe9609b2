package xdsresource

import (
	"fmt"
	"math"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/faults"
)

// SlowStart is the configuration of the policy PolicySlowStart: round robin or least request with
// Envoy's slow_start_config.
type SlowStart struct {
	// Window is how long an endpoint starts, that is, gets less than its share. 0: not at all.
	Window time.Duration `json:"windowNanos"`
	// Aggression is greater than 0. With 1 the share grows linearly; with more it grows faster at
	// first.
	Aggression float64
	// MinWeightPercent is the least part of its share that an endpoint gets, from 0 to 100.
	MinWeightPercent float64
	// ChoiceCount is that of least request, from 2 to 10. 0: round robin.
	ChoiceCount uint32
}

// maxChoices is the greatest choice count that counts (gRFC A48).
const maxChoices = 10

// ParseSlowStart reads a configuration in JSON.
func ParseSlowStart(config string) (SlowStart, error) {
	s, err := parsePolicy(config, SlowStart{Aggression: 1, MinWeightPercent: 10})
	if err != nil {
		return SlowStart{}, err
	}
	s.ChoiceCount = min(s.ChoiceCount, maxChoices)
	switch {
	case s.Window < 0:
		return SlowStart{}, fmt.Errorf("windowNanos must not be negative, is %d", s.Window)
	case !(s.Aggression > 0):
		return SlowStart{}, fmt.Errorf("aggression must be greater than 0, is %v", s.Aggression)
	case !(s.MinWeightPercent >= 0 && s.MinWeightPercent <= 100):
		return SlowStart{}, fmt.Errorf("minWeightPercent must be from 0 to 100, is %v", s.MinWeightPercent)
	case s.ChoiceCount == 1:
		return SlowStart{}, fmt.Errorf("choiceCount must be at least %d, is 1", minChoices)
	}
	return s, nil
}

// Permille is the part of its share, in 1/1000, that an endpoint gets after the given time. It is at
// least 1.
func (s SlowStart) Permille(age time.Duration) uint32 {
	if age >= s.Window {
		return 1000
	}
	part := math.Pow(float64(max(age, 0))/float64(s.Window), 1/s.Aggression)
	return uint32(max(1, math.Round(1000*min(1, max(part, s.MinWeightPercent/100)))))
}

// slowStartConfig is the message in either place that has it.
type slowStartConfig interface {
	GetSlowStartWindow() *durationpb.Duration
	GetAggression() *corepb.RuntimeDouble
	GetMinWeightPercent() *typepb.Percent
}

// slowStart sets PolicySlowStart, with the choice count of least request or 0 for round robin. It
// reports false, and sets nothing, if pb has no window.
func (d policyDecoder) slowStart(at *faults.Path, pb slowStartConfig, choices uint32) bool {
	before := d.faults.Total()
	window := d.durationOr(at.Field("slow_start_window"), pb.GetSlowStartWindow(), 0)
	if d.faults.Total() > before {
		return true
	}
	if window == 0 {
		return false
	}
	if why := dialect.SlowStart.About(d.client, "this client"); why != "" {
		d.ignore(at, "%s", why)
		return false
	}
	config := map[string]any{"windowNanos": int64(window)}
	// Envoy takes any other aggression for 1.
	if a := pb.GetAggression().GetDefaultValue(); a > 0 && !math.IsInf(a, 1) {
		config["aggression"] = a
	}
	if p := pb.GetMinWeightPercent(); p != nil {
		if !(p.GetValue() >= 0 && p.GetValue() <= 100) {
			d.fault(at.Field("min_weight_percent"), "must be from 0 to 100, is %v", p.GetValue())
			return true
		}
		config["minWeightPercent"] = p.GetValue()
	}
	if choices > 0 {
		config["choiceCount"] = choices
	}
	d.setPolicy(at, PolicySlowStart, config)
	return true
}

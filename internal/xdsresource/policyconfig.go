package xdsresource

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/faults"
)

// Bounds on the size of a ring (gRFC A42).
const (
	defaultMinRingSize = 1024
	maxRingSize        = 8 << 20
	// RingSizeCap is the size that no ring exceeds, whatever a control plane
	// asks for.
	RingSizeCap = 4096
)

// RingHash is the configuration of the policy PolicyRingHash.
type RingHash struct {
	// MinRingSize and MaxRingSize bound the number of entries of the ring. Both
	// are from 1 to RingSizeCap.
	MinRingSize, MaxRingSize uint64
	// RequestHashHeader is the header of RPCs that is hashed in place of what
	// the route's hash policies give (gRFC A76). Lower case. Empty: none.
	RequestHashHeader string
}

// ParseRingHash reads a configuration in the JSON form of gRPC's service
// config. A size of 0 is the default, as in gRPC-Go. Sizes above RingSizeCap become RingSizeCap.
func ParseRingHash(config string) (RingHash, error) {
	c, err := parsePolicy(config, RingHash{})
	if err != nil {
		return RingHash{}, err
	}
	c.MinRingSize = cmp.Or(c.MinRingSize, defaultMinRingSize)
	c.MaxRingSize = cmp.Or(c.MaxRingSize, maxRingSize)
	c.RequestHashHeader = strings.ToLower(c.RequestHashHeader)
	switch {
	case c.MinRingSize > maxRingSize:
		return RingHash{}, fmt.Errorf("minRingSize must be at most %d, is %d", maxRingSize, c.MinRingSize)
	case c.MaxRingSize > maxRingSize:
		return RingHash{}, fmt.Errorf("maxRingSize must be at most %d, is %d", maxRingSize, c.MaxRingSize)
	case c.MinRingSize > c.MaxRingSize:
		return RingHash{}, fmt.Errorf("minRingSize %d is more than maxRingSize %d", c.MinRingSize, c.MaxRingSize)
	case c.RequestHashHeader != "" && !isHashHeader(c.RequestHashHeader):
		return RingHash{}, fmt.Errorf("requestHashHeader %s is not the name of a header with text", faults.Quote(c.RequestHashHeader))
	}
	c.MinRingSize, c.MaxRingSize = min(c.MinRingSize, RingSizeCap), min(c.MaxRingSize, RingSizeCap)
	return c, nil
}

// isHashHeader reports whether name is a valid metadata key whose value is text.
func isHashHeader(name string) bool {
	return !strings.HasSuffix(name, "-bin") && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// ringHash reads the sizes that both forms of the configuration have.
func (d clusterDecoder) ringHash(at *faults.Path, pb interface {
	GetMinimumRingSize() *wrapperspb.UInt64Value
	GetMaximumRingSize() *wrapperspb.UInt64Value
}) {
	d.setPolicy(at, PolicyRingHash, map[string]any{
		"minRingSize": cmp.Or(pb.GetMinimumRingSize().GetValue(), defaultMinRingSize),
		"maxRingSize": cmp.Or(pb.GetMaximumRingSize().GetValue(), maxRingSize),
	})
}

// MaglevSizeCap is Envoy's default for the size of a table, and the size that none exceeds: the time
// to make one, and its memory, grow with it.
const MaglevSizeCap = 65537

// maxMaglevSize is the greatest size that Envoy takes.
const maxMaglevSize = 5000011

// Maglev is the configuration of the policy PolicyMaglev.
type Maglev struct {
	// TableSize is a prime number from 2 to MaglevSizeCap.
	TableSize uint64
}

// ParseMaglev reads a configuration in JSON. A size above MaglevSizeCap becomes MaglevSizeCap.
func ParseMaglev(config string) (Maglev, error) {
	c, err := parsePolicy(config, Maglev{TableSize: MaglevSizeCap})
	if err != nil {
		return Maglev{}, err
	}
	size := c.TableSize
	if size < 2 || size > maxMaglevSize || !new(big.Int).SetUint64(size).ProbablyPrime(0) {
		return Maglev{}, fmt.Errorf("tableSize must be a prime number from 2 to %d, is %d", maxMaglevSize, size)
	}
	return Maglev{TableSize: min(size, MaglevSizeCap)}, nil
}

// maglev reads the size that both forms of the configuration have.
func (d clusterDecoder) maglev(at *faults.Path, pb interface {
	GetTableSize() *wrapperspb.UInt64Value
}) {
	config := map[string]any{}
	if size := pb.GetTableSize(); size != nil {
		config["tableSize"] = size.GetValue()
	}
	d.setPolicy(at, PolicyMaglev, config)
}

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
func (d clusterDecoder) slowStart(at *faults.Path, pb slowStartConfig, choices uint32) bool {
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
		config["minWeightPercent"] = d.percent(at.Field("min_weight_percent"), p.GetValue())
	}
	if choices > 0 {
		config["choiceCount"] = choices
	}
	if d.faults.Total() == before {
		d.setPolicy(at, PolicySlowStart, config)
	}
	return true
}

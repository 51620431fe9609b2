package xdsresource

import (
	"testing"
	"time"

	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/balancer/weightedtarget" // registers weighted_target_experimental
)

// channelPolicy is the name of a policy for dynxds itself, as package balancer registers one.
const channelPolicy = "dynxds_test_experimental"

func init() { balancer.Register(channelPolicyBuilder{balancer.Get("round_robin")}) }

type channelPolicyBuilder struct{ balancer.Builder }

func (channelPolicyBuilder) Name() string { return channelPolicy }

// gRFC A42: sizes above the cap are the cap.
func TestRingSizesAreCapped(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]RingHash{
		``:                                  {MinRingSize: 1024, MaxRingSize: 4096},
		`{"minRingSize":0,"maxRingSize":0}`: {MinRingSize: 1024, MaxRingSize: 4096},
		`{"minRingSize":5000}`:              {MinRingSize: 4096, MaxRingSize: 4096},
		`{"requestHashHeader":"User-Id"}`:   {MinRingSize: 1024, MaxRingSize: 4096, RequestHashHeader: "user-id"},
	} {
		got, err := ParseRingHash(config)
		if err != nil || got != want {
			t.Errorf("ParseRingHash(%s) = %+v, %v, want %+v", config, got, err, want)
		}
	}
	for _, config := range []string{`[]`, `{"minRingSize":-1}`, `{"requestHashHeader":"a b"}`} {
		if _, err := ParseRingHash(config); err == nil {
			t.Errorf("ParseRingHash(%s) has no error", config)
		}
	}
}

// A table costs time and memory: sizes above Envoy's default are that.
func TestMaglevSizesAreCapped(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]uint64{
		``: 65537, `{}`: 65537, `{"tableSize":2}`: 2, `{"tableSize":65521}`: 65521, `{"tableSize":65539}`: 65537, `{"tableSize":5000011}`: 65537,
	} {
		if got, err := ParseMaglev(config); err != nil || got.TableSize != want {
			t.Errorf("ParseMaglev(%s) = %+v, %v, want a size of %d", config, got, err, want)
		}
	}
	for _, config := range []string{`[]`, `{"tableSize":-1}`, `{"tableSize":0}`, `{"tableSize":9}`} {
		if _, err := ParseMaglev(config); err == nil {
			t.Errorf("ParseMaglev(%s) has no error", config)
		}
	}
}

// The share of an endpoint within its window, in 1/1000; the configuration of the policy itself.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		config string
		age    time.Duration
		want   uint32
	}{
		{``, 0, 1000}, {`{"windowNanos":100}`, 0, 100}, {`{"windowNanos":100}`, -5, 100}, {`{"windowNanos":100}`, 50, 500},
		{`{"windowNanos":100}`, 100, 1000}, {`{"windowNanos":100,"minWeightPercent":0}`, 0, 1},
		{`{"windowNanos":9223372036854775807,"aggression":1e300}`, 1, 1000}, {`{"windowNanos":100,"aggression":1e-300}`, 99, 100},
		{`{"windowNanos":100,"choiceCount":99}`, 30, 300},
	} {
		s, err := ParseSlowStart(tc.config)
		if got := s.Permille(tc.age); err != nil || got != tc.want || s.ChoiceCount > 10 {
			t.Errorf("%s after %d: %d of 1000, choices %d (%v), want %d", tc.config, tc.age, got, s.ChoiceCount, err, tc.want)
		}
	}
	for _, config := range []string{`[]`, `{"windowNanos":-1}`, `{"aggression":0}`, `{"minWeightPercent":100.1}`, `{"choiceCount":1}`} {
		if _, err := ParseSlowStart(config); err == nil {
			t.Errorf("ParseSlowStart(%s) has no error", config)
		}
	}
}

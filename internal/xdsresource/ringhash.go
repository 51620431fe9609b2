package xdsresource

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/wrapperspb"

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
// config. Sizes above RingSizeCap become RingSizeCap.
func ParseRingHash(config string) (RingHash, error) {
	c, err := parsePolicy(config, RingHash{MinRingSize: defaultMinRingSize, MaxRingSize: maxRingSize})
	if err != nil {
		return RingHash{}, err
	}
	c.RequestHashHeader = strings.ToLower(c.RequestHashHeader)
	switch {
	case c.MinRingSize == 0 || c.MinRingSize > maxRingSize:
		return RingHash{}, fmt.Errorf("minRingSize must be from 1 to %d, is %d", maxRingSize, c.MinRingSize)
	case c.MaxRingSize == 0 || c.MaxRingSize > maxRingSize:
		return RingHash{}, fmt.Errorf("maxRingSize must be from 1 to %d, is %d", maxRingSize, c.MaxRingSize)
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
func (d policyDecoder) ringHash(at *faults.Path, pb interface {
	GetMinimumRingSize() *wrapperspb.UInt64Value
	GetMaximumRingSize() *wrapperspb.UInt64Value
}) {
	least, most := uint64(defaultMinRingSize), uint64(maxRingSize)
	if size := pb.GetMinimumRingSize(); size != nil {
		least = size.GetValue()
	}
	if size := pb.GetMaximumRingSize(); size != nil {
		most = size.GetValue()
	}
	d.setPolicy(at, PolicyRingHash, map[string]any{"minRingSize": least, "maxRingSize": most})
}

package xdsresource

import (
	"fmt"
	"math/big"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/faults"
)

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
func (d policyDecoder) maglev(at *faults.Path, pb interface {
	GetTableSize() *wrapperspb.UInt64Value
}) {
	config := map[string]any{}
	if size := pb.GetTableSize(); size != nil {
		config["tableSize"] = size.GetValue()
	}
	d.setPolicy(at, PolicyMaglev, config)
}

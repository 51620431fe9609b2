package random

import (
	"math/rand/v2"
	"slices"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/perendpoint"
)

// picker has the endpoints to pick from, in blocks of equal size, except for the last one. It
// is immutable, and shares unchanged blocks with pickers made from it. An RPC that gets an
// endpoint that is not connected any more waits for the next picker.
type picker struct {
	blocks [][]*perendpoint.Member
	n      int
}

const blockSize = 128

// Pick takes no lock and allocates nothing.
func (p picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	return p.at(rand.IntN(p.n)).State().Picker.Pick(info)
}

func (p picker) at(i int) *perendpoint.Member { return p.blocks[i/blockSize][i%blockSize] }

// with returns p with another i-th entry; i is at most n.
func (p picker) with(i int, entry *perendpoint.Member) picker {
	blocks := slices.Clone(p.blocks)
	if i/blockSize == len(blocks) {
		blocks = append(blocks, nil)
	}
	block := append(make([]*perendpoint.Member, 0, blockSize), blocks[i/blockSize]...)
	if i == p.n {
		block = append(block, entry)
	} else {
		block[i%blockSize] = entry
	}
	blocks[i/blockSize] = block
	return picker{blocks, max(p.n, i+1)}
}

// shortened returns p without its last entry.
func (p picker) shortened() picker {
	last := p.n - 1
	blocks := slices.Clone(p.blocks)
	if last%blockSize == 0 {
		return picker{blocks[:len(blocks)-1], last}
	}
	blocks[last/blockSize] = blocks[last/blockSize][:last%blockSize]
	return picker{blocks, last}
}

package dnsconfig

import (
	"hash/maphash"
	"math/rand/v2"
	"reflect"

	"google.golang.org/grpc/resolver"
)

// seed makes each process draw other numbers.
var seed = maphash.MakeSeed()

// drawFor returns the channel's draw, a number from 0 to 99, which has to survive the new resolver after an idle
// period: a hash of the address of the channel's metrics recorder, the only part of resolver.BuildOptions that
// identifies the channel. Without a recorder it draws each time.
func drawFor(opts resolver.BuildOptions) int {
	recorder := reflect.ValueOf(opts.MetricsRecorder)
	if recorder.Kind() != reflect.Pointer || recorder.IsNil() {
		return rand.IntN(100)
	}
	return int(maphash.Comparable(seed, recorder.Pointer()) % 100)
}

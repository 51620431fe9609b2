package dnsconfig

import (
	"math/rand/v2"
	"reflect"
	"runtime"
	"sync"
	"weak"

	"google.golang.org/grpc/resolver"
)

// draws keeps the draw of each channel while the channel is in memory. A
// channel that was idle has its resolver built again, and must not draw again.
//
// What a resolver is given that stays the same over the life of a channel is
// its metrics recorder, so that is the key. It is held weakly.
var draws = struct {
	mu       sync.Mutex
	channels map[weak.Pointer[byte]]int
}{channels: map[weak.Pointer[byte]]int{}}

// drawFor returns the channel's draw, a number from 0 to 99. A caller that is
// not a channel, and has no recorder, gets a fresh one.
func drawFor(opts resolver.BuildOptions) int {
	recorder := reflect.ValueOf(opts.MetricsRecorder)
	if recorder.Kind() != reflect.Pointer || recorder.IsNil() {
		return rand.IntN(100)
	}
	object := (*byte)(recorder.UnsafePointer())
	key := weak.Make(object)
	draws.mu.Lock()
	defer draws.mu.Unlock()
	if n, ok := draws.channels[key]; ok {
		return n
	}
	n := rand.IntN(100)
	draws.channels[key] = n
	runtime.AddCleanup(object, forgetDraw, key)
	return n
}

func forgetDraw(key weak.Pointer[byte]) {
	draws.mu.Lock()
	defer draws.mu.Unlock()
	delete(draws.channels, key)
}

package dnsconfig

import (
	"math/rand/v2"
	"reflect"
	"runtime"
	"sync"
	"weak"

	"google.golang.org/grpc/resolver"
)

// draws has the draw of each channel, which has to survive the new resolver after an idle
// period. The key is the channel's metrics recorder, held weakly: it is the only part of
// resolver.BuildOptions that identifies the channel.
var draws = struct {
	mu       sync.Mutex
	channels map[weak.Pointer[byte]]int
}{channels: map[weak.Pointer[byte]]int{}}

// drawFor returns the channel's draw, a number from 0 to 99. Without a recorder it draws each time.
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

//go:build !race

package interop_test

const raceDetector = false

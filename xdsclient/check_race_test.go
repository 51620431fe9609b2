//go:build race

package xdsclient

const raceDetector = true

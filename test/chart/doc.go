// Package chart tests charts/deltabridge with the real helm and promtool, and against a real API server.
//
// Contract: the chart is only ever looked at through helm, as its users see it. What is generated (values.schema.json,
// README.md, the renderings in testdata) is compared, and written with -update.
package chart

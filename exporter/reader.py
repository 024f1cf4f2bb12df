"""The reader child: owns one backend, answers ``poll`` requests. Imports nothing of the web."""
